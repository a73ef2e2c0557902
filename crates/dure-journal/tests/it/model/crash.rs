//! Every medium a crash in a state can leave.

use super::state::{
    BUFFERS, CORES, DATA_BLOCKS, Nat, Reached, State, TIDS, TORN, TxId, TxSet, VERSIONS,
};

/// What is on the medium after the crash.
#[derive(Debug, Clone)]
pub(crate) struct Medium {
    pub(crate) log: TxSet,
    /// With images: transactions of which only the first piece is there.
    pub(crate) half: TxSet,
    pub(crate) image: [[bool; VERSIONS]; BUFFERS],
    /// `None`: torn, or never written.
    pub(crate) nat: [Option<Nat>; 2],
    pub(crate) tail: [u8; CORES],
    pub(crate) home: [u8; BUFFERS],
    pub(crate) data: [u8; DATA_BLOCKS],
}

/// Writes that may or may not be there.
#[derive(Debug, Clone, Copy)]
enum Open {
    Log(TxId),
    Image(usize, usize),
    Tail(usize),
    /// These may also be torn.
    Nat(usize),
    Home(usize),
    Data(usize),
}

impl Open {
    fn fates(self, state: &State) -> u32 {
        match self {
            // In pieces, one for each node.
            Self::Log(id) if state.tx(id).copied.count_ones() > 1 => 3,
            // A torn transaction or image fails its checksum: as if it were lost. A torn header
            // leaves the other slot of its pair.
            Self::Log(_) | Self::Image(..) | Self::Tail(_) => 2,
            Self::Nat(_) | Self::Home(_) | Self::Data(_) => 3,
        }
    }

    fn apply(self, state: &State, medium: &mut Medium, fate: u32) {
        let torn = fate == 2;
        match self {
            _ if fate == 0 => {}
            Self::Log(id) if torn => medium.half.add(id),
            Self::Log(id) => medium.log.add(id),
            Self::Image(buffer, version) => medium.image[buffer][version] = true,
            Self::Tail(core) => medium.tail[core] = state.tail_written[core].unwrap(),
            Self::Nat(slot) => medium.nat[slot] = state.nat_written[slot].filter(|_| !torn),
            Self::Home(buffer) => {
                medium.home[buffer] = if torn {
                    TORN
                } else {
                    state.home_written[buffer].unwrap()
                };
            }
            Self::Data(block) => {
                medium.data[block] = if torn {
                    TORN
                } else {
                    state.data_written[block].unwrap()
                };
            }
        }
    }
}

/// Calls `judge` with every medium, until it returns an error.
pub(crate) fn every_medium(
    state: &State,
    judge: &mut dyn FnMut(&Medium) -> Result<(), String>,
) -> Result<(), String> {
    let (certain, open) = split(state);
    let mut fates = vec![0; open.len()];
    loop {
        let mut medium = certain.clone();
        for (write, fate) in open.iter().zip(&fates) {
            write.apply(state, &mut medium, *fate);
        }
        judge(&medium)?;
        let next = open
            .iter()
            .zip(&fates)
            .position(|(write, fate)| *fate + 1 < write.fates(state));
        let Some(place) = next else { return Ok(()) };
        fates[place] += 1;
        fates[..place].fill(0);
    }
}

/// What is durable, and what is open.
fn split(state: &State) -> (Medium, Vec<Open>) {
    let mut open = Vec::new();
    let mut medium = Medium {
        log: TxSet::default(),
        half: TxSet::default(),
        image: [[false; VERSIONS]; BUFFERS],
        nat: state.nat_durable,
        tail: state.tail_durable,
        home: state.home_durable,
        data: state.data_durable,
    };
    for core in 0..CORES {
        for tid in usize::from(state.reused[core])..TIDS {
            let id = TxId::new(core, tid);
            match state.tx(id).reached {
                Reached::Durable => medium.log.add(id),
                Reached::Written => open.push(Open::Log(id)),
                Reached::Memory => {}
            }
        }
        open.extend(state.tail_written[core].map(|_| Open::Tail(core)));
    }
    for buffer in 0..BUFFERS {
        // Version 0 needs no image.
        medium.image[buffer][0] = true;
        for version in 1..VERSIONS {
            match state.images[buffer][version] {
                Reached::Durable => medium.image[buffer][version] = true,
                Reached::Written => open.push(Open::Image(buffer, version)),
                Reached::Memory => {}
            }
        }
        open.extend(state.home_written[buffer].map(|_| Open::Home(buffer)));
    }
    open.extend(
        (0..2)
            .filter(|slot| state.nat_written[*slot].is_some())
            .map(Open::Nat),
    );
    let data = (0..DATA_BLOCKS).filter(|block| state.data_written[*block].is_some());
    open.extend(data.map(Open::Data));
    (medium, open)
}
