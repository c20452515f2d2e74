"""How many virtual nodes the rows of a table are distributed to."""

DEFAULT_VNODE_COUNT = 256
MAX_VNODE_COUNT = 32_768
