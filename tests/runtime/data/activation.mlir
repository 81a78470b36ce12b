// A function with an activation of 4 MiB between two dispatches, and a result of 4 MiB.
util.func public @twice(%a: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
  %0 = arith.addf %a, %a : tensor<1024x1024xf32>
  %1 = util.optimization_barrier %0 : tensor<1024x1024xf32>
  %2 = arith.mulf %1, %1 : tensor<1024x1024xf32>
  util.return %2 : tensor<1024x1024xf32>
}
