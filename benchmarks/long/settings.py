"""What all contestants have in common. This imports nothing: peers read it in environments of their own."""

HEADS, K = 8, 32
WINDOW = 256  # keys to each side
GLOBAL = 16  # global tokens of Longformer
FEATURES = 128  # random features of the Performer
WIDTH = 128  # mixtures of the Linformer
LANDMARKS = 64  # of the Nyströmformer
