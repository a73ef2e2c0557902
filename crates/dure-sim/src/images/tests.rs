//! Canaries: a volume that shows what it must not is noticed.

use super::base::bases;
use super::damage::{Damaged, Random, damage};
use super::judge::judge;
use super::{Case, run};

#[test]
fn undamaged_volumes_are_sound_and_stay_so() {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    for base in bases() {
        let damaged = Damaged {
            image: base.image.clone(),
            how: Vec::new(),
            crafted: false,
            orphans: false,
        };
        let outcome = judge(base, &damaged, scratch).unwrap();
        assert!(
            outcome.clean && outcome.mounted && outcome.repaired,
            "{}",
            base.name
        );
    }
}

#[test]
fn canary_an_older_state_that_check_calls_sound_is_noticed() {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    let bases = bases();
    // As if all of the newest structures had rotted, silently.
    let damaged = Damaged {
        image: bases[0].image.clone(),
        how: Vec::new(),
        crafted: false,
        orphans: false,
    };
    let wrong = judge(&bases[1], &damaged, scratch).unwrap_err();
    assert!(wrong.contains("rot changed the volume"), "{wrong}");
}

#[test]
fn canary_what_is_made_outside_is_noticed() {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    std::fs::write(scratch.join("escaped-a"), "x").unwrap();
    let base = &bases()[0];
    let damaged = Damaged {
        image: base.image.clone(),
        how: Vec::new(),
        crafted: true,
        orphans: false,
    };
    let wrong = judge(base, &damaged, scratch).unwrap_err();
    assert!(wrong.contains("escaped-a"), "{wrong}");
}

#[test]
fn a_case_makes_the_same_image_again_and_checksums_are_right() {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    let base = &bases()[1];
    for number in 0..40 {
        let make = || damage(base, &mut Random::new(3, number), scratch);
        let (one, two) = (make(), make());
        assert_eq!(one.image, two.image);
        assert_eq!(one.how, two.how);
    }
}

#[test]
fn a_few_images() {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    for number in 0..20 {
        let case = Case { seed: 1, number };
        run(case, scratch).unwrap();
    }
}
