//! The facade on the threads of the machine.

#![cfg(not(dure_backend = "loom"))]

mod basics;
mod range_lock;
mod vital_thread;
