//! What the cores of a point do.

use std::fmt::{self, Display, Formatter};

use super::{Policy, Workload};

/// A kind of work; what else there is to say of it is a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The calls of a workload on a volume. The text has the policies that it is mounted with.
    Calls(Workload),
    /// Requests to a null device. The text has `hw_queues=N,nr_requests=N`.
    Requests,
}

/// What each core does over and over.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a run has a few")]
pub enum Work {
    /// The calls of a workload, on a volume that is mounted so.
    Calls(Workload, Policy),
    /// Requests to a null device, which another task of the core completes.
    Requests(Requests),
}

/// A block layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Hardware queues.
    pub hw_queues: u32,
    /// Tags of each.
    pub nr_requests: u32,
}

impl Kind {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Calls(workload) => workload.name(),
            Kind::Requests => "requests",
        }
    }

    /// Such work.
    ///
    /// # Errors
    /// What of the text is wrong.
    pub fn work(self, text: &str) -> Result<Work, String> {
        match self {
            Kind::Calls(workload) => Ok(Work::Calls(workload, text.parse()?)),
            Kind::Requests => Ok(Work::Requests(requests(text)?)),
        }
    }
}

fn requests(text: &str) -> Result<Requests, String> {
    let mut words = text.split(',');
    let mut number = |name: &str| {
        let (_, value) = words
            .next()?
            .split_once('=')
            .filter(|(key, _)| *key == name)?;
        value.parse().ok().filter(|number| *number > 0)
    };
    match (number("hw_queues"), number("nr_requests")) {
        (Some(hw_queues), Some(nr_requests)) => Ok(Requests {
            hw_queues,
            nr_requests,
        }),
        _ => Err(format!("{text}: it is hw_queues=N,nr_requests=N")),
    }
}

impl Work {
    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Work::Calls(workload, _) => workload.name(),
            Work::Requests(_) => Kind::Requests.name(),
        }
    }

    /// The policy of its volume, if it has one.
    pub(super) fn policy(&self) -> Option<&Policy> {
        match self {
            Work::Calls(_, policy) => Some(policy),
            Work::Requests(_) => None,
        }
    }

    /// Whether one more core disturbs those that count.
    pub(super) fn has_background(&self) -> bool {
        match self {
            Work::Calls(workload, _) => workload.has_background(),
            Work::Requests(_) => false,
        }
    }
}

/// The text.
impl Display for Work {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Work::Calls(_, policy) => write!(f, "{policy}"),
            Work::Requests(own) => {
                let Requests {
                    hw_queues,
                    nr_requests,
                } = own;
                write!(f, "hw_queues={hw_queues},nr_requests={nr_requests}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_written() {
        let text = "hw_queues=8,nr_requests=64";
        assert_eq!(Kind::Requests.work(text).unwrap().to_string(), text);
        for wrong in [
            "",
            "hw_queues=8",
            "nr_requests=64,hw_queues=8",
            "hw_queues=0,nr_requests=1",
        ] {
            let refused = Kind::Requests.work(wrong).unwrap_err();
            assert!(refused.contains("hw_queues=N"), "{refused}");
        }
        let calls = Kind::Calls(Workload::Dwol);
        assert!(calls.work("jornal=jbd2").is_err());
        assert_eq!(calls.work("default").unwrap().name(), "DWOL");
    }
}
