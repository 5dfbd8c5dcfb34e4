"""Real servers, measured: what the campaign asks for, carried out by the rooms below."""
