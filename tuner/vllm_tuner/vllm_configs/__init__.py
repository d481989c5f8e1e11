"""vLLM's own tuned files: their names, what they hold, who reads them, and proof that they were read.

vLLM's Triton kernel for a mixture of experts takes its tile sizes from a JSON file that it finds by name, and falls
back to built-in ones without a sign on the outside when the name is a letter off. Other kernels for experts never look.
So this room starts with the name and the reader (`names`, `shapes`, `readers`), keeps what was not tuned at vLLM's own
defaults (`defaults`, `table`), proves the reading with vLLM's own loader (`prove`) and a server's log (`serverlog`),
and times candidates through vLLM's own entry points where there is a GPU (`timing`, `tune`). docs/tuned-files.md.
"""
