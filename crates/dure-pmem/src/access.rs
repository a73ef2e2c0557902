//! Copies from and to persistent memory that survive a memory error.
//!
//! **Problem.** An access to a line that the medium has lost, or behind the end of a file that has
//! become shorter, raises SIGBUS, which ends the process. **Structure.** All accesses are in two
//! routines in assembler. A handler of SIGBUS looks where the thread was: within them it lets the
//! thread go on at `fault`, which returns 1 to the caller of the routine. Anywhere else the handler
//! that was there before goes on. **Invariants.** The routines touch no stack, so `fault` finds the
//! return address where the routine had it. Being assembler, they may run concurrently with copies
//! by other threads: a reader gets a mixture of old and new bytes, as from any device.
//! **On a crash** nothing of this remains.

use std::arch::global_asm;
use std::ptr;

use dure_sync::ProcessOnce;
use libc::{c_int, c_void, siginfo_t, ucontext_t};

global_asm!(
    ".pushsection .text.dure_pmem, \"ax\", @progbits",
    ".balign 64",
    ".globl dure_pmem_begin",
    ".hidden dure_pmem_begin",
    "dure_pmem_begin:",
    // (to rdi, from rsi, bytes rdx) -> 0
    ".globl dure_pmem_copy",
    ".hidden dure_pmem_copy",
    "dure_pmem_copy:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    // (to rdi, from rsi, words rdx) -> 0; `to` at a word.
    ".balign 16",
    ".globl dure_pmem_stream",
    ".hidden dure_pmem_stream",
    "dure_pmem_stream:",
    // Word by word to the begin of a line.
    "2:",
    "test edi, 63",
    "jz 3f",
    "test rdx, rdx",
    "jz 5f",
    "mov rax, [rsi]",
    "movnti [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "dec rdx",
    "jmp 2b",
    // Line by line.
    "3:",
    "cmp rdx, 8",
    "jb 4f",
    "movdqu xmm0, [rsi]",
    "movdqu xmm1, [rsi + 16]",
    "movdqu xmm2, [rsi + 32]",
    "movdqu xmm3, [rsi + 48]",
    "movntdq [rdi], xmm0",
    "movntdq [rdi + 16], xmm1",
    "movntdq [rdi + 32], xmm2",
    "movntdq [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 8",
    "jmp 3b",
    // The words of a last line.
    "4:",
    "test rdx, rdx",
    "jz 5f",
    "mov rax, [rsi]",
    "movnti [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "dec rdx",
    "jmp 4b",
    "5:",
    "xor eax, eax",
    "ret",
    ".globl dure_pmem_end",
    ".hidden dure_pmem_end",
    "dure_pmem_end:",
    ".globl dure_pmem_fault",
    ".hidden dure_pmem_fault",
    "dure_pmem_fault:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

// JUSTIFICATION: only code whose addresses are known can be left on a SIGBUS.
// SAFETY: defined above, with these arguments; the two functions that are called follow the C ABI.
unsafe extern "C" {
    static dure_pmem_begin: u8;
    static dure_pmem_end: u8;
    static dure_pmem_fault: u8;
    fn dure_pmem_copy(to: *mut u8, from: *const u8, bytes: usize) -> u64;
    fn dure_pmem_stream(to: *mut u8, from: *const u8, words: usize) -> u64;
}

/// The memory could not be read or written.
#[derive(Debug)]
pub(crate) struct Faulted;

fn done(faults: u64) -> Result<(), Faulted> {
    if faults == 0 { Ok(()) } else { Err(Faulted) }
}

/// Copies bytes, through the cache.
///
/// # Safety
/// Both ranges are mapped, not null, and do not overlap; the memory of the program among them is
/// valid for it. That of a region may be used by others at once.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> Result<(), Faulted> {
    // SAFETY: as the caller promises; a fault is answered by the handler.
    done(unsafe { dure_pmem_copy(to, from, bytes) })
}

/// Copies words of 8 bytes past the cache, to an aligned place.
///
/// # Safety
/// The requirements of [`copy`].
pub(crate) unsafe fn stream(to: *mut u8, from: *const u8, words: usize) -> Result<(), Faulted> {
    assert!(to.addr().is_multiple_of(8), "words are stored at words");
    // SAFETY: as the caller promises; a fault is answered by the handler.
    done(unsafe { dure_pmem_stream(to, from, words) })
}

/// The handler that was there before ours.
static BEFORE: ProcessOnce<libc::sigaction> = ProcessOnce::new();

/// Makes a SIGBUS in the routines an error, from now on in the whole process.
///
/// # Errors
/// The system refuses the handler.
pub(crate) fn catch_faults() -> rustix::io::Result<()> {
    static CAUGHT: ProcessOnce<rustix::io::Result<()>> = ProcessOnce::new();
    *CAUGHT.get_or_init(|| {
        // SAFETY: all bits zero is a value of this plain structure.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: reads the present handler into a structure of ours.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
            return Err(last_error());
        }
        BEFORE.get_or_init(|| before);
        // SAFETY: as above.
        let mut own: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_sigbus;
        own.sa_sigaction = handler as *const () as usize;
        own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler only does what a handler may: it reads constants and its own context.
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const own, ptr::null_mut()) } != 0 {
            return Err(last_error());
        }
        Ok(())
    })
}

fn last_error() -> rustix::io::Errno {
    let error = std::io::Error::last_os_error();
    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
}

/// Runs on the thread that met the error.
extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let context = context.cast::<ucontext_t>();
    let index = usize::try_from(libc::REG_RIP).unwrap_or(0);
    // SAFETY: the kernel passes the context of the thread, which only this handler uses now.
    let at = unsafe { &mut (*context).uc_mcontext.gregs[index] };
    let (begin, end) = (&raw const dure_pmem_begin, &raw const dure_pmem_end);
    let rip = usize::try_from(*at).unwrap_or(0);
    if (begin.addr()..end.addr()).contains(&rip) {
        let fault = &raw const dure_pmem_fault;
        *at = i64::try_from(fault.addr()).unwrap_or(0);
        return;
    }
    pass_on(signal, info, context.cast());
}

/// Does what would have been done without us.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The default ends the process when the instruction is tried again.
        // SAFETY: restores a handler that the system knows.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let takes_info = before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
    if takes_info {
        // SAFETY: a handler set with SA_SIGINFO is such a function.
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
            unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: a handler set without SA_SIGINFO is such a function.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}
