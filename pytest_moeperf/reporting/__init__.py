"""What people and machines are told: one view of the outcomes, and one module for each way to show it."""
