//! Random numbers of a workload: the same in every run.

use dure_sync::random::Seeded;

use crate::measure::f64_of;

/// Between 0, exclusively, and 1.
fn unit(random: &mut Seeded) -> f64 {
    f64_of((random.next_u64() >> 12) + 1) / f64_of(1 << 52)
}

/// A number of the gamma distribution of shape 1.5: an exponential one and half a squared
/// normal one, times two thirds of the mean.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number of bytes; the conversion saturates"
)]
pub(crate) fn gamma(random: &mut Seeded, mean: u64) -> u64 {
    let normal = (std::f64::consts::TAU * unit(random)).cos();
    let sum = -unit(random).ln() - unit(random).ln() * normal * normal;
    (sum * f64_of(mean) / 1.5) as u64
}

#[cfg(test)]
mod tests {
    use dure_sync::random::Seeded;

    #[test]
    fn gamma_has_its_mean() {
        let mut random = Seeded::new(1);
        let sum: u64 = (0..100_000)
            .map(|_| super::gamma(&mut random, 16_384))
            .sum();
        let mean = sum / 100_000;
        assert!((16_000..16_800).contains(&mean), "{mean}");
    }
}
