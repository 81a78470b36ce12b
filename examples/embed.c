// Runs a model with IREE's C runtime alone: one float32 input, one float32 output, in memory that the caller owns.
//
//   embed MODEL.vmfb INPUT.bin 1,1,32,32 OUTPUT.bin 1,10 [FUNCTION]
//
// Build it with the CMakeLists.txt beside this file. `sartor inspect MODEL.vmfb` prints names, types and shapes, and
// docs/guide/embedding.md says what the entries of a module are. `main_graph$bound` takes a buffer view for each input
// and then for each output, writes the latter, and returns nothing, so a call allocates nothing. In a module that keeps
// states between calls, `main_graph$stateful$bound` does the same with inputs and outputs that are no states: each call
// goes on where the last one ended, in this session. Another session on the module is another sequence.

#include <iree/io/file_contents.h>
#include <iree/runtime/api.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_DIMS = 8, MOST_NAME = 256, CALLS = 1000 };

typedef struct {
  iree_hal_dim_t shape[MOST_DIMS];
  iree_host_size_t rank;
  iree_host_size_t bytes;
} tensor_t;

// Reads "1,10".
static tensor_t parse_shape(const char* text) {
  tensor_t tensor = {.bytes = sizeof(float)};
  while (*text && tensor.rank < MOST_DIMS) {
    char* end;
    tensor.shape[tensor.rank] = strtoull(text, &end, 10);
    tensor.bytes *= tensor.shape[tensor.rank++];
    text = *end == ',' ? end + 1 : end;
    if (*end && *end != ',') break;
  }
  return tensor;
}

// Allocates a tensor in the device's memory and copies content to it, or zeros if there is none.
static iree_status_t make_view(iree_runtime_session_t* session, const tensor_t* tensor, const void* content,
                               iree_hal_buffer_view_t** out_view) {
  iree_hal_buffer_params_t params = {
      .usage = IREE_HAL_BUFFER_USAGE_DEFAULT | IREE_HAL_BUFFER_USAGE_MAPPING,
      .type = IREE_HAL_MEMORY_TYPE_DEVICE_LOCAL | IREE_HAL_MEMORY_TYPE_HOST_VISIBLE,
  };
  void* zeros = content ? NULL : calloc(1, tensor->bytes);
  iree_const_byte_span_t bytes = iree_make_const_byte_span(content ? content : zeros, tensor->bytes);
  iree_status_t status = iree_hal_buffer_view_allocate_buffer_copy(
      iree_runtime_session_device(session), iree_runtime_session_device_allocator(session), tensor->rank, tensor->shape,
      IREE_HAL_ELEMENT_TYPE_FLOAT_32, IREE_HAL_ENCODING_TYPE_DENSE_ROW_MAJOR, params, bytes, out_view);
  free(zeros);
  return status;
}

// Runs the model, many times, and prints the mean time.
static iree_status_t run(iree_runtime_session_t* session, const char* function, iree_hal_buffer_view_t* input,
                         iree_hal_buffer_view_t* output) {
  char name[MOST_NAME];
  snprintf(name, sizeof(name), "module.%s", function);
  iree_runtime_call_t call;
  IREE_RETURN_IF_ERROR(iree_runtime_call_initialize_by_name(session, iree_make_cstring_view(name), &call));
  iree_status_t status = iree_runtime_call_inputs_push_back_buffer_view(&call, input);
  if (iree_status_is_ok(status)) status = iree_runtime_call_inputs_push_back_buffer_view(&call, output);
  // The first call maps weights and code.
  if (iree_status_is_ok(status)) status = iree_runtime_call_invoke(&call, 0);
  iree_time_t begin = iree_time_now();
  for (int i = 0; i < CALLS && iree_status_is_ok(status); ++i) status = iree_runtime_call_invoke(&call, 0);
  if (iree_status_is_ok(status)) printf("%.1f us a call\n", (iree_time_now() - begin) / 1e3 / CALLS);
  iree_runtime_call_deinitialize(&call);
  return status;
}

static iree_status_t run_files(iree_runtime_session_t* session, char** arguments) {
  tensor_t taken = parse_shape(arguments[2]), given = parse_shape(arguments[4]);
  iree_allocator_t host = iree_allocator_system();
  iree_io_file_contents_t* file = NULL;
  IREE_RETURN_IF_ERROR(iree_io_file_contents_read(iree_make_cstring_view(arguments[1]), host, &file));
  iree_hal_buffer_view_t *input = NULL, *output = NULL;
  iree_status_t status =
      file->const_buffer.data_length == taken.bytes
          ? make_view(session, &taken, file->const_buffer.data, &input)
          : iree_make_status(IREE_STATUS_INVALID_ARGUMENT, "'%s' does not have %zu bytes", arguments[1], taken.bytes);
  if (iree_status_is_ok(status)) status = make_view(session, &given, NULL, &output);
  if (iree_status_is_ok(status)) status = run(session, arguments[5], input, output);
  void* result = malloc(given.bytes);
  if (iree_status_is_ok(status)) {
    status = iree_hal_device_transfer_d2h(iree_runtime_session_device(session), iree_hal_buffer_view_buffer(output), 0,
                                          result, given.bytes, IREE_HAL_TRANSFER_BUFFER_FLAG_DEFAULT,
                                          iree_infinite_timeout());
  }
  if (iree_status_is_ok(status)) {
    status = iree_io_file_contents_write(iree_make_cstring_view(arguments[3]),
                                         iree_make_const_byte_span(result, given.bytes), host);
  }
  free(result);
  iree_hal_buffer_view_release(output);
  iree_hal_buffer_view_release(input);
  iree_io_file_contents_free(file);
  return status;
}

// The device "local-sync" computes in the calling thread; "local-task" starts a thread for each core.
static iree_status_t open_and_run(char** arguments) {
  iree_runtime_instance_options_t options;
  iree_runtime_instance_options_initialize(&options);
  iree_runtime_instance_options_use_all_available_drivers(&options);
  iree_allocator_t host = iree_allocator_system();
  iree_runtime_instance_t* instance = NULL;
  IREE_RETURN_IF_ERROR(iree_runtime_instance_create(&options, host, &instance));
  iree_hal_device_t* device = NULL;
  iree_status_t status =
      iree_runtime_instance_try_create_default_device(instance, iree_make_cstring_view("local-sync"), &device);
  iree_runtime_session_t* session = NULL;
  if (iree_status_is_ok(status)) {
    iree_runtime_session_options_t session_options;
    iree_runtime_session_options_initialize(&session_options);
    status = iree_runtime_session_create_with_device(instance, &session_options, device, host, &session);
  }
  if (iree_status_is_ok(status)) {
    status = iree_runtime_session_append_bytecode_module_from_file(session, arguments[0]);
  }
  if (iree_status_is_ok(status)) status = run_files(session, arguments);
  iree_runtime_session_release(session);
  iree_hal_device_release(device);
  iree_runtime_instance_release(instance);
  return status;
}

int main(int count, char** arguments) {
  if (count != 6 && count != 7) {
    fprintf(stderr, "usage: %s MODEL.vmfb INPUT.bin SHAPE OUTPUT.bin SHAPE [FUNCTION]\n", arguments[0]);
    return 2;
  }
  char* given[6] = {arguments[1], arguments[2], arguments[3], arguments[4], arguments[5],
                    count == 7 ? arguments[6] : "main_graph$bound"};
  iree_status_t status = open_and_run(given);
  if (iree_status_is_ok(status)) return 0;
  iree_status_fprint(stderr, status);
  iree_status_free(status);
  return 1;
}
