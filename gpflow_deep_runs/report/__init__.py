"""What a run shows: tables of text, figures, pictures; results of record, and the pages that show them."""
