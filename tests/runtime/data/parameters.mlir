// Adds weights that are kept in a file of their own, under the scope "model".
util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<4xf32>
util.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> attributes {REFLECTION} {
  %w = util.global.load @w : tensor<4xf32>
  %0 = arith.addf %x, %w : tensor<4xf32>
  util.return %0 : tensor<4xf32>
}
