// Runs a module of several segments with IREE's C runtime alone: the loop that sartor.Session runs, without overlap.
//
// The table below is that of one module: `sartor inspect MODEL.vmfb --json` prints "segments" with each function,
// device, part, the values that it takes, and those that it gives. Values are numbered here: 0 is the network's input.
// docs/records/devices.md describes the file. Build it against IREE's runtime (target iree_runtime_unified) and its headers.

#include <iree/io/file_contents.h>
#include <iree/runtime/api.h>
#include <stdio.h>
#include <string.h>

enum { CPU, GPU, DEVICES };
static const char* const drivers[DEVICES] = {"local-task", "vulkan"};
// Empty: the file itself, whose first module is for this device.
static const char* const parts[DEVICES] = {"", "vulkan.vmfb"};

enum { MOST = 8, VALUES = 5, OUTPUT = 4 };
static const struct {
  const char* function;
  int device, input_count, inputs[MOST], output_count, outputs[MOST];
} segments[] = {
    {"module.main_graph$0", GPU, 1, {0}, 1, {1}},
    {"module.main_graph$1", CPU, 1, {1}, 1, {2}},
    {"module.main_graph$2", GPU, 1, {2}, 1, {3}},
    {"module.main_graph$3", CPU, 1, {3}, 1, {4}},
};

static uint16_t read16(const uint8_t* at) { return at[0] | at[1] << 8; }
static uint32_t read32(const uint8_t* at) { return read16(at) | (uint32_t)read16(at + 2) << 16; }

// The part of a name, which is stored without compression; the file itself if the name is empty. Beyond 4 GiB a zip has
// longer fields, which are not read here.
static iree_status_t find_part(iree_const_byte_span_t file, const char* name, iree_const_byte_span_t* out_part) {
  *out_part = file;
  if (!*name) return iree_ok_status();
  const uint8_t* end = file.data + file.data_length - 22;
  if (file.data_length < 22 || read32(end) != 0x06054b50) {
    return iree_make_status(IREE_STATUS_INVALID_ARGUMENT, "the file is truncated");
  }
  const uint8_t* entry = file.data + read32(end + 16);
  for (int i = 0; i < read16(end + 10); ++i) {
    uint16_t length = read16(entry + 28);
    if (length == strlen(name) && !memcmp(entry + 46, name, length)) {
      const uint8_t* header = file.data + read32(entry + 42);
      const uint8_t* begin = header + 30 + read16(header + 26) + read16(header + 28);
      *out_part = iree_make_const_byte_span(begin, read32(entry + 24));
      return iree_ok_status();
    }
    entry += 46 + length + read16(entry + 30) + read16(entry + 32);
  }
  return iree_make_status(IREE_STATUS_NOT_FOUND, "the file has no part '%s'", name);
}

// Puts a tensor into a device's memory.
static iree_status_t upload(iree_runtime_session_t* session, iree_host_size_t rank, const iree_hal_dim_t* shape,
                            iree_hal_element_type_t type, iree_const_byte_span_t data, iree_hal_buffer_view_t** out) {
  iree_hal_buffer_params_t params = {
      .usage = IREE_HAL_BUFFER_USAGE_DEFAULT,
      .type = IREE_HAL_MEMORY_TYPE_DEVICE_LOCAL,
  };
  return iree_hal_buffer_view_allocate_buffer_copy(
      iree_runtime_session_device(session), iree_runtime_session_device_allocator(session), rank, shape, type,
      IREE_HAL_ENCODING_TYPE_DENSE_ROW_MAJOR, params, data, out);
}

// Copies a tensor to another device, through the host.
static iree_status_t move(iree_runtime_session_t* from, iree_hal_buffer_view_t* view, iree_runtime_session_t* to,
                          iree_hal_buffer_view_t** out) {
  iree_allocator_t allocator = iree_runtime_session_host_allocator(to);
  iree_device_size_t size = iree_hal_buffer_view_byte_length(view);
  void* host = NULL;
  IREE_RETURN_IF_ERROR(iree_allocator_malloc(allocator, size, &host));
  iree_status_t status = iree_hal_device_transfer_d2h(
      iree_runtime_session_device(from), iree_hal_buffer_view_buffer(view), 0, host, size,
      IREE_HAL_TRANSFER_BUFFER_FLAG_DEFAULT, iree_infinite_timeout());
  if (iree_status_is_ok(status)) {
    status = upload(to, iree_hal_buffer_view_shape_rank(view), iree_hal_buffer_view_shape_dims(view),
                    iree_hal_buffer_view_element_type(view), iree_make_const_byte_span(host, size), out);
  }
  iree_allocator_free(allocator, host);
  return status;
}

typedef struct {
  iree_hal_buffer_view_t* on[DEVICES];  // copies; NULL where the value was not needed yet
  int device;                           // where it was computed
} value_t;

// A value on a device, copied there once.
static iree_status_t value_on(iree_runtime_session_t* const* sessions, value_t* value, int device,
                              iree_hal_buffer_view_t** out) {
  if (!value->on[device]) {
    IREE_RETURN_IF_ERROR(
        move(sessions[value->device], value->on[value->device], sessions[device], &value->on[device]));
  }
  *out = value->on[device];
  return iree_ok_status();
}

static iree_status_t run_segment(iree_runtime_session_t* const* sessions, int index, value_t* values) {
  int device = segments[index].device;
  iree_runtime_call_t call;
  IREE_RETURN_IF_ERROR(iree_runtime_call_initialize_by_name(
      sessions[device], iree_make_cstring_view(segments[index].function), &call));
  iree_status_t status = iree_ok_status();
  for (int i = 0; i < segments[index].input_count && iree_status_is_ok(status); ++i) {
    iree_hal_buffer_view_t* view = NULL;
    status = value_on(sessions, &values[segments[index].inputs[i]], device, &view);
    if (iree_status_is_ok(status)) status = iree_runtime_call_inputs_push_back_buffer_view(&call, view);
  }
  if (iree_status_is_ok(status)) status = iree_runtime_call_invoke(&call, /*flags=*/0);
  for (int i = 0; i < segments[index].output_count && iree_status_is_ok(status); ++i) {
    value_t* value = &values[segments[index].outputs[i]];
    value->device = device;
    status = iree_runtime_call_outputs_pop_front_buffer_view(&call, &value->on[device]);
  }
  iree_runtime_call_deinitialize(&call);
  return status;
}

static iree_status_t run(iree_const_byte_span_t file, iree_runtime_instance_t* instance,
                         iree_runtime_session_t** sessions, value_t* values) {
  iree_allocator_t allocator = iree_allocator_system();
  for (int i = 0; i < DEVICES; ++i) {
    iree_hal_device_t* device = NULL;
    IREE_RETURN_IF_ERROR(
        iree_runtime_instance_try_create_default_device(instance, iree_make_cstring_view(drivers[i]), &device));
    iree_runtime_session_options_t options;
    iree_runtime_session_options_initialize(&options);
    iree_status_t status =
        iree_runtime_session_create_with_device(instance, &options, device, allocator, &sessions[i]);
    iree_hal_device_release(device);
    IREE_RETURN_IF_ERROR(status);
    iree_const_byte_span_t part;
    IREE_RETURN_IF_ERROR(find_part(file, parts[i], &part));
    IREE_RETURN_IF_ERROR(
        iree_runtime_session_append_bytecode_module_from_memory(sessions[i], part, iree_allocator_null()));
  }
  static const float zeros[64];
  const iree_hal_dim_t shape[] = {1, 1, 8, 8};
  values[0].device = CPU;
  IREE_RETURN_IF_ERROR(upload(sessions[CPU], IREE_ARRAYSIZE(shape), shape, IREE_HAL_ELEMENT_TYPE_FLOAT_32,
                              iree_make_const_byte_span(zeros, sizeof(zeros)), &values[0].on[CPU]));
  for (int i = 0; i < (int)IREE_ARRAYSIZE(segments); ++i) {
    IREE_RETURN_IF_ERROR(run_segment(sessions, i, values));
  }
  iree_hal_buffer_view_t* output = NULL;
  IREE_RETURN_IF_ERROR(value_on(sessions, &values[OUTPUT], CPU, &output));
  return iree_hal_buffer_view_fprint(stdout, output, /*max_element_count=*/1024, allocator);
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: segments MODEL.vmfb\n"), 2;
  iree_runtime_instance_options_t options;
  iree_runtime_instance_options_initialize(&options);
  iree_runtime_instance_options_use_all_available_drivers(&options);
  iree_runtime_instance_t* instance = NULL;
  iree_runtime_session_t* sessions[DEVICES] = {NULL};
  value_t values[VALUES] = {{{NULL}, 0}};
  iree_io_file_contents_t* file = NULL;
  iree_allocator_t allocator = iree_allocator_system();
  iree_status_t status = iree_runtime_instance_create(&options, allocator, &instance);
  if (iree_status_is_ok(status)) {
    status = iree_io_file_contents_map(iree_make_cstring_view(argv[1]), IREE_IO_FILE_ACCESS_READ, allocator, &file);
  }
  if (iree_status_is_ok(status)) status = run(file->const_buffer, instance, sessions, values);
  for (int i = 0; i < VALUES; ++i) {
    for (int j = 0; j < DEVICES; ++j) iree_hal_buffer_view_release(values[i].on[j]);
  }
  for (int i = 0; i < DEVICES; ++i) iree_runtime_session_release(sessions[i]);
  iree_runtime_instance_release(instance);
  if (file) iree_io_file_contents_free(file);
  int failed = !iree_status_is_ok(status);
  if (failed) iree_status_fprint(stderr, status), iree_status_free(status);
  return failed;
}
