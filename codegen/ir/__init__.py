"""What code is generated from: layers, graphs, schemas, packings, routines and targets, without MLIR."""
