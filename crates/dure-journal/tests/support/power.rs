//! Power cuts: recovers from every state that a recorded run can leave.

use dure_block::crash::{Choice, CrashImages, Fate, Selection, Tear};
use dure_block::ram::Image;
use dure_block::record::RecordDevice;
use dure_block::share;
use dure_sync::Arc;

use super::buffers::Buffers;
use super::medium::queue_of;
use super::recover;

/// How thorough to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) selection: Selection,
    /// Every so many states recovery itself is cut, and repeated with more threads.
    pub(crate) recovery_every: usize,
}

impl Default for Effort {
    fn default() -> Self {
        let selection = Selection {
            exhaustive_max: 8,
            random: 24,
            seed: 1,
            tear: Tear::Blocks,
        };
        Self {
            selection,
            recovery_every: 16,
        }
    }
}

/// Cuts the power at every frontier of the run so far and judges each state. Returns how many.
///
/// # Errors
/// The first violation.
pub(crate) fn cut_everywhere(buffers: &Buffers, effort: Effort) -> Result<usize, String> {
    let images = CrashImages::new(buffers.start.clone(), &buffers.log);
    let truth = buffers.truth.lock().clone();
    let mut states = 0;
    for step in images.frontiers() {
        let point = images.at(step);
        for choice in point.choices(effort.selection) {
            let device = Arc::new(point.image(&choice));
            let queue = queue_of(share(Arc::clone(&device)));
            states += 1;
            let recovered = recover::read(&queue, buffers.rules, 1);
            let judged = recovered.and_then(|recovered| {
                truth.judge(step, &recovered)?;
                if states % effort.recovery_every == 0 {
                    cut_recovery(buffers, &recovered, device.snapshot())?;
                }
                Ok(())
            });
            judged.map_err(|what| format!("step {step}, open writes {choice}: {what}"))?;
        }
    }
    Ok(states)
}

/// Recovers on `image` with more threads, cuts the recovery, and recovers again: the result is
/// always the same.
fn cut_recovery(
    buffers: &Buffers,
    expected: &recover::Recovered,
    image: Image,
) -> Result<(), String> {
    let recorder = RecordDevice::new(share(super::medium::device_on(image.clone())));
    let log = recorder.log();
    let queue = queue_of(share(recorder));
    let recovered = recover::read(&queue, buffers.rules, 3)?;
    if recovered.granules != expected.granules || recovered.scan != expected.scan {
        return Err("the result depends on the number of threads".into());
    }
    recovered.write(&queue, buffers.rules);
    let images = CrashImages::new(image, &log);
    for step in images.frontiers() {
        let point = images.at(step);
        for choice in point.choices(Selection {
            exhaustive_max: 6,
            ..Selection::default()
        }) {
            let queue = queue_of(share(point.image(&choice)));
            let again = recover::read(&queue, buffers.rules, 1)?;
            if again.granules != expected.granules {
                return Err(format!(
                    "recovery cut at step {step}, open writes {choice}: then {:?}, before {:?}",
                    again.granules, expected.granules
                ));
            }
        }
    }
    Ok(())
}

/// One crash state of the run so far, recovered and made durable: the next epoch starts there.
///
/// # Errors
/// The violation, if there is one.
pub(crate) fn reboot(buffers: &Buffers, draw: u64) -> Result<Buffers, String> {
    let images = CrashImages::new(buffers.start.clone(), &buffers.log);
    let frontiers = images.frontiers();
    let pick = |draw: u64, count: usize| usize::try_from(draw).unwrap() % count;
    let step = frontiers[pick(draw & 0xffff, frontiers.len())];
    let point = images.at(step);
    let choices: Vec<_> = point.choices(Effort::default().selection).collect();
    let choice = &choices[pick(draw >> 16 & 0xffff, choices.len())];
    let device = Arc::new(point.image(choice));
    let queue = queue_of(share(Arc::clone(&device)));
    let recovered = recover::read(&queue, buffers.rules, 1)?;
    buffers.truth.lock().judge(step, &recovered)?;
    recovered.write(&queue, buffers.rules);
    Ok(Buffers::mount(
        device.snapshot(),
        recovered.rings(),
        buffers.rules,
    ))
}

/// The state with every write on the medium.
///
/// # Errors
/// What recovery finds wrong.
pub(crate) fn last_state(buffers: &Buffers) -> Result<recover::Recovered, String> {
    let images = CrashImages::new(buffers.start.clone(), &buffers.log);
    let point = images.at(images.last_step());
    let all = Choice::new(point.open().map(|_| Fate::Kept).collect());
    recover::read(&queue_of(share(point.image(&all))), buffers.rules, 1)
}
