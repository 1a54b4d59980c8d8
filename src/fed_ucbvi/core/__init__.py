"""The ground floor: types, errors, files, compiling, randomness, how numbers are written; imports nothing of ours."""
