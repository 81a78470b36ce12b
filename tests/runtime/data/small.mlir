// x + y and x * y, with an entry that writes them into the caller's memory; the other is as IREE wraps a function.
util.func public @main_graph(%a: !hal.buffer_view, %b: !hal.buffer_view)
    -> (!hal.buffer_view, !hal.buffer_view) attributes {REFLECTION, iree.abi.stub} {
  %none = util.null : !hal.fence
  %forever = arith.constant -1 : i32
  %c0 = arith.constant 0 : index
  %device = hal.devices.get %c0 : !hal.device
  %fence = hal.fence.create device(%device : !hal.device) flags("None") : !hal.fence
  %x = hal.tensor.import wait(%none) => %a : !hal.buffer_view -> tensor<4x6xf32>
  %y = hal.tensor.import wait(%none) => %b : !hal.buffer_view -> tensor<4x6xf32>
  %sum = arith.addf %x, %y : tensor<4x6xf32>
  %product = arith.mulf %x, %y : tensor<4x6xf32>
  %done:2 = hal.tensor.barrier join(%sum, %product : tensor<4x6xf32>, tensor<4x6xf32>) => %fence : !hal.fence
  %r0 = hal.tensor.export %done#0 : tensor<4x6xf32> -> !hal.buffer_view
  %r1 = hal.tensor.export %done#1 : tensor<4x6xf32> -> !hal.buffer_view
  %status = hal.fence.await until([%fence]) timeout_millis(%forever) flags("None") : i32
  util.return %r0, %r1 : !hal.buffer_view, !hal.buffer_view
}
util.func public @main_graph$bound(%a: !hal.buffer_view, %b: !hal.buffer_view, %to0: !hal.buffer_view,
    %to1: !hal.buffer_view) attributes {iree.abi.stub} {
  %none = util.null : !hal.fence
  %forever = arith.constant -1 : i32
  %c0 = arith.constant 0 : index
  %device = hal.devices.get %c0 : !hal.device
  %fence = hal.fence.create device(%device : !hal.device) flags("None") : !hal.fence
  %x = hal.tensor.import wait(%none) => %a : !hal.buffer_view -> tensor<4x6xf32>
  %y = hal.tensor.import wait(%none) => %b : !hal.buffer_view -> tensor<4x6xf32>
  %sum = arith.addf %x, %y : tensor<4x6xf32>
  %product = arith.mulf %x, %y : tensor<4x6xf32>
  %m0 = hal.buffer_view.buffer<%to0 : !hal.buffer_view> : !hal.buffer
  %m1 = hal.buffer_view.buffer<%to1 : !hal.buffer_view> : !hal.buffer
  %a0 = hal.tensor.alias wait(%none) => %sum : tensor<4x6xf32> to %m0 : !hal.buffer
  %a1 = hal.tensor.alias wait(%none) => %product : tensor<4x6xf32> to %m1 : !hal.buffer
  %done:2 = hal.tensor.barrier join(%a0, %a1 : tensor<4x6xf32>, tensor<4x6xf32>) => %fence : !hal.fence
  %status = hal.fence.await until([%fence]) timeout_millis(%forever) flags("None") : i32
  util.return
}
