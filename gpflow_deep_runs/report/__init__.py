"""Results of record (results, structure; entries of a sweep), whether their code has changed since (changes), and the
pages that show them (pages, cells); images as tiles."""
