"""Options: declared once, parsed alike from every source, resolved once into frozen ``Settings``."""
