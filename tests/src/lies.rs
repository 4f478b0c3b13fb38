//! The catalogue of wrong answers of an API server, or of a proxy in front of it, about an owner that exists.
//!
//! A [`Wrong`] is an answer with one or two defects. A careless reader would conclude from it that the owner is gone. A
//! [`Told`] says which question gets the answer. Each pair is one world with two dependents: the owner of the first
//! exists, and the owner of the second is gone. No collector may delete the first dependent, whatever the answers.
//! Every collector deletes the second one when the wrong answers end.

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
