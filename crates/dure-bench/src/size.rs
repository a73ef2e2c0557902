//! Sizes as people write and read them: 4096, 64K, 1.5G; binary units.

use std::fmt;
use std::str::FromStr;

const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let bad = || format!("'{text}' is no size; write it like 4096, 64K, 512M or 1.5G");
        let upper = text.trim().to_ascii_uppercase();
        let upper = upper
            .strip_suffix("IB")
            .or(upper.strip_suffix('B'))
            .unwrap_or(&upper);
        let digits = upper.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &upper[digits.len()..];
        let power = UNITS
            .iter()
            .position(|name| *name == unit)
            .ok_or_else(bad)?;
        let shift = u32::try_from(power * 10).map_err(|_| bad())?;
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let number: u64 = whole.parse().map_err(|_| bad())?;
        let mut bytes = number.checked_mul(1_u64 << shift).ok_or_else(bad)?;
        if !part.is_empty() {
            if part.len() > 6 || power == 0 {
                return Err(bad());
            }
            let places = u32::try_from(part.len()).map_err(|_| bad())?;
            let fraction: u64 = part.parse().map_err(|_| bad())?;
            let unit = 1_u128 << shift;
            let extra = u128::from(fraction) * unit / 10_u128.pow(places);
            bytes = bytes
                .checked_add(u64::try_from(extra).map_err(|_| bad())?)
                .ok_or_else(bad)?;
        }
        Ok(Size(bytes))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut power = 0;
        let mut unit = 1_u64;
        while power + 1 < UNITS.len() && self.0 / unit >= 1024 {
            unit *= 1024;
            power += 1;
        }
        if power == 0 {
            return write!(f, "{} B", self.0);
        }
        let tenths = (u128::from(self.0) * 10 + u128::from(unit) / 2) / u128::from(unit);
        write!(f, "{}.{} {}iB", tenths / 10, tenths % 10, UNITS[power])
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 65_536),
            ("1G", 1 << 30),
            ("1.5G", 3 << 29),
            ("512MiB", 512 << 20),
            ("2TB", 2 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "G", "1X", "1.2.3G", "-1", "99999999P", "0.5", "1e3"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        assert_eq!(Size(0).to_string(), "0 B");
        assert_eq!(Size(1023).to_string(), "1023 B");
        assert_eq!(Size(1536).to_string(), "1.5 KiB");
        assert_eq!(Size(1 << 30).to_string(), "1.0 GiB");
    }
}
