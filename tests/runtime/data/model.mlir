// What the ONNX importer makes of an entry function, for a model with the outputs x + y and x * y.
util.func public @main_graph$async(%a: !hal.buffer_view, %b: !hal.buffer_view, %wait: !hal.fence,
    %signal: !hal.fence) -> (!hal.buffer_view, !hal.buffer_view)
    attributes {inlining_policy = #util.inline.never, iree.abi.model = "coarse-fences", iree.abi.stub} {
  %x = hal.tensor.import wait(%wait) => %a : !hal.buffer_view -> tensor<4x6xf32>
  %y = hal.tensor.import wait(%wait) => %b : !hal.buffer_view -> tensor<4x6xf32>
  %sum = arith.addf %x, %y : tensor<4x6xf32>
  %product = arith.mulf %x, %y : tensor<4x6xf32>
  %done:2 = hal.tensor.barrier join(%sum, %product : tensor<4x6xf32>, tensor<4x6xf32>) => %signal : !hal.fence
  %r0 = hal.tensor.export %done#0 : tensor<4x6xf32> -> !hal.buffer_view
  %r1 = hal.tensor.export %done#1 : tensor<4x6xf32> -> !hal.buffer_view
  util.return %r0, %r1 : !hal.buffer_view, !hal.buffer_view
}
util.func public @main_graph(%a: !hal.buffer_view, %b: !hal.buffer_view)
    -> (!hal.buffer_view, !hal.buffer_view) attributes {REFLECTION, iree.abi.stub} {
  %none = util.null : !hal.fence
  %forever = arith.constant -1 : i32
  %c0 = arith.constant 0 : index
  %device = hal.devices.get %c0 : !hal.device
  %fence = hal.fence.create device(%device : !hal.device) flags("None") : !hal.fence
  %r:2 = util.call @main_graph$async(%a, %b, %none, %fence)
      : (!hal.buffer_view, !hal.buffer_view, !hal.fence, !hal.fence) -> (!hal.buffer_view, !hal.buffer_view)
  %status = hal.fence.await until([%fence]) timeout_millis(%forever) flags("None") : i32
  util.return %r#0, %r#1 : !hal.buffer_view, !hal.buffer_view
}
