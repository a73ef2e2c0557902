//! The instructions that make stores durable.
//!
//! **Problem.** Processors have one to three instructions that write a cache line back, and run an
//! unknown one as an invalid opcode. **Structure.** [`WriteBack::best`] asks the processor once.
//! **Invariants.** After [`write_back`] of lines and a [`fence`] of the same thread, what had been
//! stored to these lines before is durable, if the memory is. **On a crash** see the crate.

use std::arch::{asm, x86_64};

use crate::LINE_BYTES;

/// An instruction that writes a cache line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBack {
    /// Writes back, and keeps the line in the cache.
    Clwb,
    /// Writes back and evicts; several at a time.
    Clflushopt,
    /// Writes back and evicts, one after the other. All x86-64 processors have it.
    Clflush,
}

impl WriteBack {
    /// The best that this processor has.
    #[must_use]
    pub fn best() -> WriteBack {
        /// Bits of EBX in leaf 7 of CPUID.
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        let leaf = x86_64::__cpuid(0).eax;
        let found = if leaf >= 7 {
            x86_64::__cpuid_count(7, 0).ebx
        } else {
            0
        };
        if found & CLWB != 0 {
            WriteBack::Clwb
        } else if found & CLFLUSHOPT != 0 {
            WriteBack::Clflushopt
        } else {
            WriteBack::Clflush
        }
    }

    /// Its name in the processor's manual.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WriteBack::Clwb => "clwb",
            WriteBack::Clflushopt => "clflushopt",
            WriteBack::Clflush => "clflush",
        }
    }
}

/// Writes back the cache lines of `len` bytes from `from` on; durable after the next [`fence`].
///
/// # Safety
/// The bytes are mapped.
pub(crate) unsafe fn write_back(how: WriteBack, from: *const u8, len: usize) {
    let mut line = from.map_addr(|address| address & !(LINE_BYTES - 1));
    let end = from.addr() + len;
    while line.addr() < end {
        match how {
            // JUSTIFICATION: there is no intrinsic for this instruction.
            // SAFETY: the line is mapped, as the caller promises; the processor has the
            // instruction; it changes neither memory nor registers.
            WriteBack::Clwb => unsafe { asm!("clwb [{0}]", in(reg) line, options(nostack)) },
            // JUSTIFICATION: as above.
            // SAFETY: as above.
            WriteBack::Clflushopt => unsafe {
                asm!("clflushopt [{0}]", in(reg) line, options(nostack));
            },
            // SAFETY: the line is mapped, as the caller promises.
            WriteBack::Clflush => unsafe { x86_64::_mm_clflush(line) },
        }
        line = line.wrapping_add(LINE_BYTES);
    }
}

/// Waits until this thread's write-backs and non-temporal stores are durable.
pub(crate) fn fence() {
    // SAFETY: all x86-64 processors have it; it touches no memory.
    unsafe { x86_64::_mm_sfence() }
}
