//! The inputs of the first process of a world as a recording, for the corpus of recordings.

use super::Options;
use super::world::World;
use engine::leader::Config;
use engine::time::Time;
use recording::{Call, Ended, Header, Limits, Names, Round, Writer};
use std::path::Path;

/// The calls of the first process of replica 0 so far.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    begun: Option<(Config, u64)>,
    rounds: Vec<Round>,
}

impl World {
    pub(super) fn begin_recording(&mut self, at: usize, epoch: u64, config: &Config, seed: u64) {
        if let Some(recorded) = self.recorded.as_mut().filter(|_| at == 0 && epoch == 1) {
            recorded.begun = Some((config.clone(), seed));
        }
    }

    /// Notes a call. The world takes all effects after it.
    pub(super) fn record(&mut self, at: usize, local: Time, call: impl FnOnce() -> Call) {
        let is_first = at == 0 && self.replicas[at].epoch == 1;
        if let Some(recorded) = self.recorded.as_mut().filter(|_| is_first) {
            recorded.rounds.push(Round { at: local, calls: vec![call()], unfinished: None });
        }
    }
}

/// Runs the world of a seed, and writes the recording of its first process into `directory`.
///
/// # Errors
/// The world violates a rule, or a file cannot be written.
pub fn record(seed: u64, options: &Options, directory: &Path) -> anyhow::Result<()> {
    let mut world = World::new(seed, options, false);
    world.recorded = Some(Recorded::default());
    world.run().map_err(anyhow::Error::msg)?;
    let Recorded { begun, rounds } = world.recorded.take().unwrap_or_default();
    let (config, leader_seed) = begun.ok_or_else(|| anyhow::anyhow!("no replica has started"))?;
    let header = Header {
        version: "simulated".to_owned(),
        recording: format!("sim-{seed}"),
        segment: 0,
        before: 0,
        origin: 0,
        seed: leader_seed,
        config,
        names: Names::Plain,
    };
    let mut writer = Writer::create(directory, header, Limits { directory: 1 << 30, segment: 1 << 30 })?;
    for round in &rounds {
        writer.round(round)?;
    }
    writer.end(&Ended::Stopped)?;
    Ok(())
}
