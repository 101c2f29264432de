"""Generated CNNs as files: SavedModel, TFLite, Keras, ONNX, npz; and the generator itself as a SavedModel."""
