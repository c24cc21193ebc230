"""Writes docs/reference/ from the objects that the program itself reads: `make docs`.

A page is a function without arguments that returns its text; `pages.PAGES` lists them by file name.
"""
