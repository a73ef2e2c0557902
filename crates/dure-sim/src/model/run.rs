//! A sequence on the model and on dure, compared call by call, and the search for the shortest
//! sequence that still fails.

use super::calls::ModelFs;
use super::operation::{Operation, Step, agree};
use super::real::{Mounted, Real};
use super::tree::Tree;

/// Does `steps` on both; the first difference is an error with a readable text.
///
/// # Errors
/// A text with the step and both answers, or with the difference of the trees.
pub fn compare(real: &mut Real, steps: &[Step]) -> Result<ModelFs, String> {
    let mut model = ModelFs::new();
    for (index, step) in steps.iter().enumerate() {
        let (want, got) = (model.apply(step), real.apply(step));
        if !agree(&want, &got) {
            return Err(told(index, step, &format!("{want:?}"), &format!("{got:?}")));
        }
        if let Some(found) = real.found() {
            return Err(format!("step {index} {:?}: {found}", step.operation));
        }
        if matches!(step.operation, Operation::Remount | Operation::Crash) {
            same_tree(&model, real.mounted()).map_err(|what| format!("step {index}: {what}"))?;
        }
    }
    same_tree(&model, real.mounted())?;
    Ok(model)
}

/// Does `steps` on the model and on a mounted volume, other parts of which may be in use.
/// `Remount` and `Crash` count as `Sync`.
///
/// # Errors
/// Those of [`compare`].
pub fn compare_mounted(mounted: &mut Mounted, steps: &[Step]) -> Result<(), String> {
    let mut model = ModelFs::new();
    for (index, step) in steps.iter().enumerate() {
        let mut step = step.clone();
        if matches!(step.operation, Operation::Remount | Operation::Crash) {
            step.operation = Operation::Sync;
        }
        let (want, got) = (model.apply(&step), mounted.apply(&step));
        if !agree(&want, &got) {
            return Err(told(
                index,
                &step,
                &format!("{want:?}"),
                &format!("{got:?}"),
            ));
        }
    }
    same_tree(&model, mounted)
}

fn told(index: usize, step: &Step, want: &str, got: &str) -> String {
    let cut = |text: &str| text.chars().take(300).collect::<String>();
    format!(
        "step {index} {step:?}: model {}, dure {}",
        cut(want),
        cut(got)
    )
}

/// Compares whole trees.
///
/// # Errors
/// The first difference.
pub fn same_tree(model: &ModelFs, mounted: &Mounted) -> Result<(), String> {
    let real = Tree::of_volume(mounted.root()).map_err(|error| error.to_string())?;
    match Tree::of_model(model).difference(&real) {
        Some(difference) => Err(difference),
        None => Ok(()),
    }
}

/// The shortest sequence found that still `fails`: parts are left out, large ones first, as long as
/// that helps.
pub fn shrink(mut steps: Vec<Step>, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut start = 0;
        while start < steps.len() {
            let end = (start + part).min(steps.len());
            let fewer: Vec<Step> = [&steps[..start], &steps[end..]].concat();
            if fails(&fewer) {
                steps = fewer;
            } else {
                start = end;
            }
        }
        part /= 2;
    }
    steps
}
