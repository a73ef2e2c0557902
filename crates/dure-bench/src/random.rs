//! Random numbers of a workload: the same in every run.

use crate::measure::f64_of;

/// xorshift64*.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random((0x9e37_79b9_7f4a_7c15 ^ seed).max(1))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which is not 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    /// A place in something that has `len`, which is not 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).expect("64 bits");
        usize::try_from(self.below(len)).expect("below a usize")
    }

    /// Between 0, exclusively, and 1.
    fn unit(&mut self) -> f64 {
        f64_of((self.next() >> 12) + 1) / f64_of(1 << 52)
    }

    /// A number of the gamma distribution of shape 1.5: an exponential one and half a squared
    /// normal one, times two thirds of the mean.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of bytes; the conversion saturates"
    )]
    pub(crate) fn gamma(&mut self, mean: u64) -> u64 {
        let normal = (std::f64::consts::TAU * self.unit()).cos();
        let sum = -self.unit().ln() - self.unit().ln() * normal * normal;
        (sum * f64_of(mean) / 1.5) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn gamma_has_its_mean() {
        let mut random = Random::new(1);
        let sum: u64 = (0..100_000).map(|_| random.gamma(16_384)).sum();
        let mean = sum / 100_000;
        assert!((16_000..16_800).contains(&mean), "{mean}");
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::new(2);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.index(7)] = true;
        }
        assert_eq!(seen, [true; 7]);
    }
}
