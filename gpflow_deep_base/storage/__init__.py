"""What is kept on disk, beside single `files`.

container    a model in one file: JSON and arrays in an .npz archive, with a version and a checksum
frame        small binary files: magic, version, checksum, integers of variable length, bounded reads
limits       how much memory the reader of a file may take, and one message for a damaged file
locks        one process in a folder
"""
