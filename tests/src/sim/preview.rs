//! Compares the preview of a deletion with the result of that deletion, in a world at rest.

use super::kinds::DEFINITIONS;
use super::options::{Faults, Options};
use super::perils::Peril;
use super::truth::{Actor, Life};
use super::world::{Happening, S, World};
use crate::random::Random;

use engine::leader::{Leader, Planning};
use engine::object::Uid;
use engine::plan::PlanOptions;
use engine::view::{Effect, Plan};
use engine::work::PropagationPolicy;
use sandbox::model::Policy;
use std::collections::BTreeMap;

/// The maximum number of objects that a preview covers. No world has as many.
const OBJECTS_MAX: usize = 100_000;

/// The state of the preview of a world.
#[derive(Debug)]
pub(super) enum Stage {
    /// The world makes no preview.
    Never,
    /// The world makes the preview when it is at rest.
    Wanted(Random),
    /// The preview is made, and the target is deleted.
    Made(Box<Made>),
}

/// A preview, with the objects that existed at its time.
#[derive(Debug)]
pub(super) struct Made {
    what: String,
    plan: Plan,
    /// Whether the target was marked for deletion.
    there: BTreeMap<Uid, bool>,
}

/// The results of previews of many worlds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Previewed {
    /// The number of objects by predicted effect.
    pub effects: BTreeMap<&'static str, u64>,
    /// The number of objects without a predicted effect. They were to stay unchanged.
    pub bystanders: u64,
}

impl Previewed {
    /// Adds the results of another world.
    pub fn add(&mut self, other: &Previewed) {
        self.bystanders += other.bystanders;
        for (effect, count) in &other.effects {
            *self.effects.entry(effect).or_default() += count;
        }
    }
}

/// Lets a world come to rest, asks for the preview of a deletion, deletes the target, lets the world come to rest
/// again, and compares.
///
/// # Errors
/// The difference between preview and result, or a violation on the way.
pub fn preview(seed: u64) -> Result<Previewed, String> {
    let mut options = Options::draw_with(seed, &[Peril::Mirror, Peril::Undiscovered]);
    options.faults = Faults::default();
    // Fewer deletions by users leave more for the preview.
    options.operations /= 4;
    options.users.late_dependents = 0;
    options.users.second_deletes = 0;
    let mut world = World::new(seed, &options, false);
    world.preview = Stage::Wanted(Random::new(seed, 9));
    world.run()?;
    Ok(world.previewed)
}

impl World {
    /// Returns whether the world is at rest and no work is left.
    pub(super) fn goes_on(&mut self) -> bool {
        match std::mem::replace(&mut self.preview, Stage::Never) {
            Stage::Never => false,
            Stage::Wanted(mut random) => self.preview_and_delete(&mut random),
            Stage::Made(made) => {
                if let Err(why) = self.compare(&made) {
                    self.violate(why);
                }
                false
            }
        }
    }

    fn preview_and_delete(&mut self, random: &mut Random) -> bool {
        let Some(leader) = self.replicas.iter().find_map(|replica| replica.leader.as_ref()) else { return false };
        let known = |life: &&Life| {
            let nodes = leader.queries().nodes(&life.object.uid);
            // The API server itself removes the instances of a definition.
            life.exists() && life.kind != DEFINITIONS && nodes.iter().any(|node| node.is_observed())
        };
        let lives: Vec<&Life> = self.server.truth.lives.values().filter(known).collect();
        // The target is an owner, because a preview concerns owners.
        let owns = |life: &&&Life| self.server.truth.dependents(life).next().is_some();
        let owners: Vec<&Life> = lives.iter().filter(owns).copied().collect();
        let from = if owners.is_empty() || random.percent(10) { lives } else { owners };
        let Some(target) = random.pick(&from).copied().cloned() else { return false };
        let (asked, policy) = [
            (None, None),
            (Some(PropagationPolicy::Background), Some(Policy::Background)),
            (Some(PropagationPolicy::Foreground), Some(Policy::Foreground)),
            (Some(PropagationPolicy::Orphan), Some(Policy::Orphan)),
        ][random.index(4)];
        let plan = plan(leader, &target.object.uid, asked);
        let there = self.server.truth.lives.values().filter(|life| life.exists());
        let there = there.map(|life| (life.object.uid.clone(), life.facts().terminating)).collect();
        let what = format!("{} with {asked:?}", target.named());
        let done = self.server.delete(self.now, &target, policy);
        self.note(|| format!("deletes {what}: {done:?}"));
        self.server.commit(self.now, Actor::User);
        self.spread();
        self.preview = Stage::Made(Box::new(Made { what, plan, there }));
        self.after(S, Happening::Look);
        true
    }

    fn compare(&mut self, made: &Made) -> Result<(), String> {
        let said: BTreeMap<&Uid, Effect> =
            made.plan.entries.iter().map(|entry| (&entry.object.uid, entry.effect)).collect();
        for (uid, was_marked) in &made.there {
            let Some(life) = self.server.truth.lives.get(uid) else { continue };
            let now = (life.exists(), life.exists() && life.facts().terminating);
            let (word, expected) = match said.get(uid) {
                Some(Effect::Delete) => ("delete", (false, false)),
                Some(Effect::Waits) => ("waits", (true, true)),
                Some(Effect::ReferenceRemoved) => ("reference removed", (true, *was_marked)),
                Some(Effect::Orphaned) => ("orphaned", (true, *was_marked)),
                Some(Effect::Held) => ("held", (true, *was_marked)),
                Some(Effect::Unknown) => ("unknown", (true, *was_marked)),
                None => ("nothing", (true, *was_marked)),
            };
            match said.contains_key(uid) {
                true => *self.previewed.effects.entry(word).or_default() += 1,
                false => self.previewed.bystanders += 1,
            }
            if now != expected {
                return Err(format!(
                    "of the deletion of {} the preview said {word} of {}, and it is there: {}, marked: {}\n{:#?}",
                    made.what,
                    life.named(),
                    now.0,
                    now.1,
                    made.plan.entries.iter().map(|entry| (entry.object.to_string(), entry.effect)).collect::<Vec<_>>()
                ));
            }
        }
        Ok(())
    }
}

fn plan(leader: &Leader, target: &Uid, propagation_policy: Option<PropagationPolicy>) -> Plan {
    let mut planning = Planning::new(PlanOptions {
        targets: vec![target.clone()],
        propagation_policy,
        assume_gone: Vec::new(),
        ignore_holds: false,
        max_objects: OBJECTS_MAX,
    });
    while !planning.step(&leader.queries(), 100) {}
    planning.finish(leader.queries().frame())
}
