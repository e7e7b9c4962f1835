// Meson precompiles headers for a library: this one, which is empty.
