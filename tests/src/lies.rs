//! The catalogue of wrong answers: what an API server, or a proxy in front of it, can say of an owner that lives.
//!
//! A [`Wrong`] is an answer that would make a careless reader believe that the owner is gone, with one or two defects. A [`Told`] says which
//! question gets it. Each pair of them is one world: an owner that lives, with a dependent, and a dependent of an owner that is gone.
//! No collector may delete the first dependent, whatever it is told; and every collector deletes the second once the lies end.

mod answer;
mod document;
mod encode;
mod members;
mod teller;
mod worlds;

pub use answer::{Asked, Coding, Ending, Form, Items, Kind, Media, Status, Version, Wrong};
pub use document::Defect;
pub use members::Row;
pub use teller::{Lane, Setting, Teller, Told};
pub use worlds::{Collector, Outcome, Run, run};
