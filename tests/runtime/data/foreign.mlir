// Functions that take and give every kind of tensor; IREE's compiler records their signatures.
util.func public @bf16(%a: tensor<2x3xbf16>) -> tensor<2x3xbf16> {
  %0 = arith.addf %a, %a : tensor<2x3xbf16>
  util.return %0 : tensor<2x3xbf16>
}
util.func public @f16(%a: tensor<2x3xf16>) -> tensor<2x3xf16> {
  %0 = arith.addf %a, %a : tensor<2x3xf16>
  util.return %0 : tensor<2x3xf16>
}
util.func public @f32(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = arith.addf %a, %a : tensor<2x3xf32>
  util.return %0 : tensor<2x3xf32>
}
util.func public @f64(%a: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %0 = arith.addf %a, %a : tensor<2x3xf64>
  util.return %0 : tensor<2x3xf64>
}
util.func public @i8(%a: tensor<2x3xi8>) -> tensor<2x3xi8> {
  %0 = arith.addi %a, %a : tensor<2x3xi8>
  util.return %0 : tensor<2x3xi8>
}
util.func public @i16(%a: tensor<2x3xi16>) -> tensor<2x3xi16> {
  %0 = arith.addi %a, %a : tensor<2x3xi16>
  util.return %0 : tensor<2x3xi16>
}
util.func public @i32(%a: tensor<2x3xi32>) -> tensor<2x3xi32> {
  %0 = arith.addi %a, %a : tensor<2x3xi32>
  util.return %0 : tensor<2x3xi32>
}
util.func public @i64(%a: tensor<2x3xi64>) -> tensor<2x3xi64> {
  %0 = arith.addi %a, %a : tensor<2x3xi64>
  util.return %0 : tensor<2x3xi64>
}
util.func public @bool(%a: tensor<4xi1>, %b: tensor<4xi1>) -> tensor<4xi1> {
  %0 = arith.andi %a, %b : tensor<4xi1>
  util.return %0 : tensor<4xi1>
}
util.func public @scalar(%a: tensor<f32>) -> tensor<f32> {
  %0 = arith.addf %a, %a : tensor<f32>
  util.return %0 : tensor<f32>
}
util.func public @empty(%a: tensor<0x3xf32>) -> tensor<0x3xf32> {
  %0 = arith.addf %a, %a : tensor<0x3xf32>
  util.return %0 : tensor<0x3xf32>
}
util.func public @dynamic(%a: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = arith.addf %a, %a : tensor<?x3xf32>
  util.return %0 : tensor<?x3xf32>
}
util.func public @twice_the_same(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  util.return %a, %a : tensor<8xf32>, tensor<8xf32>
}
util.func public @no_inputs() -> tensor<2xf32> {
  %0 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  util.return %0 : tensor<2xf32>
}
util.func public @not_a_tensor(%a: i32) -> i32 {
  util.return %a : i32
}
