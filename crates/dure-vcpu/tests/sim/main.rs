//! The machine of virtual cores.

mod machine;
mod watch;

use dure_vcpu::LineAllocator;

#[global_allocator]
static ALLOCATOR: LineAllocator = LineAllocator(std::alloc::System);
