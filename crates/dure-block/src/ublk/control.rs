//! Commands to the driver.
//!
//! **Structure.** [`Control`] has `/dev/ublk-control` and a ring of 128-byte entries; one command
//! at a time. **Invariants.** A command's record lives until the command is complete. **Crash.** The
//! driver ends a command with its process.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::fs::{Mode, OFlags, open};
use zerocopy::{FromZeros, IntoBytes};

use super::{abi, failed};
use crate::{Error, OsError, Result};

pub(super) const PATH: &str = "/dev/ublk-control";

/// The driver.
pub(super) struct Control {
    file: OwnedFd,
    ring: IoUring<Entry128, cqueue::Entry>,
}

impl Control {
    pub(super) fn open() -> Result<Control> {
        let file = open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let refused = |action, os| Error::Open {
            path: PathBuf::from(PATH),
            action,
            os,
        };
        let file = file.map_err(|os| {
            let action = "ask for block devices (needs root, Linux 6.5 or later, and its module: \
                          modprobe ublk_drv)";
            refused(action, os.into())
        })?;
        let ring = IoUring::builder().build(4);
        let ring = ring.map_err(|error| refused("make a ring", os(&error)))?;
        Ok(Control { file, ring })
    }

    pub(super) fn add(&mut self, information: &mut abi::Information) -> Result<()> {
        let command = abi::ControlCommand {
            device: information.device,
            ..empty()
        };
        let done = self.run(abi::ADD, command, information.as_mut_bytes());
        done.map_err(|os| failed(information.device, "add a device", os.errno()))
    }

    pub(super) fn set_parameters(
        &mut self,
        device: u32,
        mut parameters: abi::Parameters,
    ) -> Result<()> {
        let command = abi::ControlCommand { device, ..empty() };
        let done = self.run(abi::SET_PARAMETERS, command, parameters.as_mut_bytes());
        done.map_err(|os| failed(device, "set its parameters", os.errno()))
    }

    pub(super) fn information(&mut self, device: u32) -> Result<abi::Information> {
        let mut information = abi::Information::new_zeroed();
        let command = abi::ControlCommand { device, ..empty() };
        let done = self.run(abi::GET_INFO, command, information.as_mut_bytes());
        done.map_err(|os| failed(device, "find the device", os.errno()))?;
        Ok(information)
    }

    pub(super) fn parameters(&mut self, device: u32) -> Result<abi::Parameters> {
        let mut parameters = abi::Parameters::new_zeroed();
        parameters.len = u32::try_from(size_of::<abi::Parameters>()).expect("a record is small");
        let command = abi::ControlCommand { device, ..empty() };
        let done = self.run(abi::GET_PARAMETERS, command, parameters.as_mut_bytes());
        done.map_err(|os| failed(device, "read its parameters", os.errno()))?;
        Ok(parameters)
    }

    /// A command without a record.
    pub(super) fn simple(
        &mut self,
        operation: u32,
        device: u32,
        action: &'static str,
    ) -> Result<()> {
        self.for_server(operation, device, 0, action)
    }

    /// A command that names the process of the server.
    pub(super) fn for_server(
        &mut self,
        operation: u32,
        device: u32,
        server: i32,
        action: &'static str,
    ) -> Result<()> {
        let command = abi::ControlCommand {
            device,
            data: u64::from(server.unsigned_abs()),
            ..empty()
        };
        let done = self.run(operation, command, &mut []);
        done.map_err(|os| failed(device, action, os.errno()))
    }

    /// Runs a command to its end; its record may be changed by the kernel.
    fn run(
        &mut self,
        operation: u32,
        mut command: abi::ControlCommand,
        record: &mut [u8],
    ) -> std::result::Result<(), OsError> {
        if !record.is_empty() {
            command.len = u16::try_from(record.len()).expect("a record is small");
            command.address =
                u64::try_from(record.as_mut_ptr().expose_provenance()).expect("64 bits");
        }
        let mut bytes = [0; 80];
        bytes[..size_of_val(&command)].copy_from_slice(command.as_bytes());
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(file, operation).cmd(bytes).build();
        // SAFETY: the record is borrowed until the completion has been seen below, and the command
        // was copied into the entry.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring is empty between commands");
        loop {
            let waited = self.ring.submit_and_wait(1);
            if let Some(done) = self.ring.completion().next() {
                return match done.result() {
                    code @ ..0 => Err(OsError::new(-code)),
                    _ => Ok(()),
                };
            }
            match waited {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // The kernel would not take the command, so it has no memory of ours.
                Err(error) => return Err(os(&error)),
            }
        }
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Control")
    }
}

fn empty() -> abi::ControlCommand {
    abi::ControlCommand {
        queue: abi::NO_QUEUE,
        ..abi::ControlCommand::new_zeroed()
    }
}

pub(super) fn os(error: &std::io::Error) -> OsError {
    OsError::new(error.raw_os_error().unwrap_or(libc::EIO))
}
