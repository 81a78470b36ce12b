// Reads a module ahead of its first inference, and moves it to huge pages behind it: what sartor.Session does, in C.
//
// A module's weights lie in the order of execution, and IREE uses them where they are mapped. So a program maps the
// file, lets a thread read it from the beginning, and runs; once the first inference is done, the thread copies block
// after block to huge pages and moves these over the mapping. Addresses and content stay the same. The same holds for
// weights in a file of their own. docs/records/cold-start.md says what it gains. Linux only.
//
//   struct overlap file;
//   if (overlap_open("model.vmfb", &file)) ...      // errno
//   // iree_runtime_session_append_bytecode_module_from_memory(session, (iree_const_byte_span_t){file.data, file.size},
//   //                                                         iree_allocator_null())
//   // the first inference
//   overlap_fill(&file);
//   // further inferences; at the end, after the session is released:
//   overlap_close(&file);
//
// Link with -lpthread. Do not write to a mapped file: replace it by renaming another to its name.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { HUGE = 2 << 20, AT_ONCE = 4 << 20, BLOCK = 8 << 20, END = 512 << 10 };

struct overlap {
  uint8_t* data;
  size_t size;
  size_t own;  // Bytes from the beginning that are memory of this process.
  size_t reserved;
  int handle;
  pthread_t reader, filler;
  int is_filling;
  atomic_int is_stopped;
};

static size_t rounded(size_t size) { return (size + HUGE - 1) / HUGE * HUGE; }

// Addresses where huge pages may lie, with nothing there yet.
static uint8_t* reserve(size_t size) {
  uint8_t* begin = mmap(NULL, size + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return MAP_FAILED;
  uint8_t* aligned = (uint8_t*)rounded((uintptr_t)begin);
  if (aligned > begin) munmap(begin, aligned - begin);
  munmap(aligned + size, begin + HUGE - aligned);
  return aligned;
}

static void* read_ahead(void* argument) {
  struct overlap* file = argument;
  for (size_t begin = 0; begin < file->size && !file->is_stopped; begin += AT_ONCE) {
    size_t size = file->size - begin < AT_ONCE ? file->size - begin : AT_ONCE;
    if (madvise(file->data + begin, size, MADV_POPULATE_READ)) break;
  }
  return NULL;
}

// Moves one block; -1 if there is no memory or the file became shorter, and the block stays mapped.
static int move_block(struct overlap* file) {
  size_t left = file->size - file->own, size = rounded(left) < BLOCK ? rounded(left) : BLOCK, done = 0;
  uint8_t* block = reserve(size);
  if (block == MAP_FAILED) return -1;
  if (mmap(block, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) goto failed;
  madvise(block, size, MADV_HUGEPAGE);
  for (size_t wanted = left < size ? left : size; done < wanted;) {
    ssize_t count = pread(file->handle, block + done, wanted - done, file->own + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) goto failed;
    done += count;
  }
  if (mprotect(block, size, PROT_READ)) goto failed;
  if (mremap(block, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, file->data + file->own) == MAP_FAILED) goto failed;
  file->own += size;
  return 0;
failed:
  munmap(block, size);
  return -1;
}

static void* fill(void* argument) {
  struct overlap* file = argument;
  while (file->own < file->size && !file->is_stopped && !move_block(file)) continue;
  return NULL;
}

// Maps a file and begins to read it; returns 0, or -1 with errno.
int overlap_open(const char* path, struct overlap* file) {
  struct stat found;
  *file = (struct overlap){.handle = open(path, O_RDONLY | O_CLOEXEC)};
  if (file->handle < 0) return -1;
  if (fstat(file->handle, &found)) goto failed;
  file->size = found.st_size;
  file->reserved = rounded(file->size);
  file->data = reserve(file->reserved);
  if (file->data == MAP_FAILED) goto failed;
  if (mmap(file->data, file->size, PROT_READ, MAP_PRIVATE | MAP_FIXED, file->handle, 0) == MAP_FAILED) goto unmapped;
  // Where the file system can, it is read into huge pages of the page cache, and ahead.
  madvise(file->data, file->size, MADV_HUGEPAGE);
  posix_fadvise(file->handle, 0, 0, POSIX_FADV_SEQUENTIAL);
  // Code and the directory are at the end, and are needed before most of the weights.
  posix_fadvise(file->handle, file->size > END ? file->size - END : 0, END, POSIX_FADV_WILLNEED);
  if ((errno = pthread_create(&file->reader, NULL, read_ahead, file))) goto unmapped;
  return 0;
unmapped:
  munmap(file->data, file->reserved);
failed:
  close(file->handle);
  return -1;
}

// Begins to fill huge pages, when the first inference is done.
void overlap_fill(struct overlap* file) {
  file->is_filling = file->is_filling || !pthread_create(&file->filler, NULL, fill, file);
}

// Waits until they are filled; returns whether all of the file is memory of this process.
int overlap_settle(struct overlap* file) {
  if (file->is_filling) pthread_join(file->filler, NULL);
  file->is_filling = 0;
  return file->own >= file->size;
}

// Unmaps the file, when nothing uses it any more.
void overlap_close(struct overlap* file) {
  file->is_stopped = 1;
  pthread_join(file->reader, NULL);
  overlap_settle(file);
  munmap(file->data, file->reserved);
  close(file->handle);
}
