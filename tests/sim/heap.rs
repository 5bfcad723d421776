//! The simulator's own allocator: lists of freed blocks, by size, for each thread.
//!
//! A world consists of small strings that live for a moment: glibc spent a third of the time on
//! them. Here a freed block is the next one to be allocated, and blocks are never merged or
//! returned to the system, which a process of seconds can afford. The product uses the system's
//! allocator.
#![expect(unsafe_code, reason = "an allocator needs pointers")]
#![expect(clippy::cast_ptr_alignment, reason = "every block of ours is aligned to `STEP`")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

/// Blocks of up to this size are multiples of [`STEP`].
const FINE_MAX: usize = 1 << FINE_BITS;
const FINE_BITS: u32 = 10;
const STEP: usize = 16;
const FINE: usize = FINE_MAX / STEP + 1;
/// Above, there are four sizes for each power of two; larger blocks come from the system.
const OURS_MAX: usize = 1 << OURS_BITS;
const OURS_BITS: u32 = 15;
const LISTS: usize = FINE + 4 * (OURS_BITS - FINE_BITS) as usize;
/// Allocated from the system at once.
const CHUNK: usize = 1 << 18;

/// The allocator of the whole program.
pub struct Heap;

/// The free blocks of one thread.
struct Hoard {
    /// Freed blocks: each begins with the address of the next.
    free: [Cell<*mut u8>; LISTS],
    /// The rest of the last chunk.
    rest: Cell<*mut u8>,
    rest_len: Cell<usize>,
}

thread_local! {
    static HOARD: Hoard = const {
        Hoard {
            free: [const { Cell::new(null_mut()) }; LISTS],
            rest: Cell::new(null_mut()),
            rest_len: Cell::new(0),
        }
    };
}

/// The list for blocks of this layout, and their size; `None`: the system's.
#[inline]
fn list_of(layout: Layout) -> Option<(usize, usize)> {
    let size = layout.size();
    if layout.align() > STEP {
        None
    } else if size <= FINE_MAX {
        let list = size.div_ceil(STEP);
        Some((list, list * STEP))
    } else if size <= OURS_MAX {
        let last = size - 1;
        let bits = last.ilog2();
        let quarter = (last >> (bits - 2)) & 3;
        let list = FINE + 4 * (bits - FINE_BITS) as usize + quarter;
        Some((list, (quarter + 5) << (bits - 2)))
    } else {
        None
    }
}

impl Hoard {
    #[cold]
    fn cut(&self, size: usize) -> *mut u8 {
        if self.rest_len.get() < size {
            // SAFETY: the size is neither zero nor odd.
            let chunk = unsafe { System.alloc(Layout::from_size_align_unchecked(CHUNK, STEP)) };
            if chunk.is_null() {
                return chunk;
            }
            self.rest.set(chunk);
            self.rest_len.set(CHUNK);
        }
        let block = self.rest.get();
        // SAFETY: the chunk has this many bytes left.
        self.rest.set(unsafe { block.add(size) });
        self.rest_len.set(self.rest_len.get() - size);
        block
    }
}

// SAFETY: a block is on no list while it is in use; lists of one size hold blocks of that size,
// aligned to `STEP`; each thread has its own lists, so only the thread that frees a block touches
// it.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let Some((list, size)) = list_of(layout) else { return unsafe { System.alloc(layout) } };
        HOARD.with(|hoard| {
            let block = hoard.free[list].get();
            if block.is_null() {
                return hoard.cut(size);
            }
            // SAFETY: it was freed, and has contained the next block's address since.
            hoard.free[list].set(unsafe { block.cast::<*mut u8>().read() });
            block
        })
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        let Some((list, _)) = list_of(layout) else {
            return unsafe { System.dealloc(block, layout) };
        };
        HOARD.with(|hoard| {
            // SAFETY: it is no longer in use, and has at least `STEP` bytes.
            unsafe { block.cast::<*mut u8>().write(hoard.free[list].get()) };
            hoard.free[list].set(block);
        });
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, old: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's: the new size is neither zero nor too large for the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, old.align()) };
        match (list_of(old), list_of(new)) {
            (Some(from), Some(to)) if from == to => block,
            // SAFETY: the caller's.
            (None, None) => unsafe { System.realloc(block, old, size) },
            (Some(_), _) | (_, Some(_)) => {
                // SAFETY: both blocks have as many bytes as are copied, and are not the same.
                unsafe {
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(block, old.size().min(size));
                        self.dealloc(block, old);
                    }
                    moved
                }
            }
        }
    }
}
