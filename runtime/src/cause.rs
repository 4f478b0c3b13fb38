//! The causes of errors.

use std::error::Error;

/// The innermost cause. The outer errors only say that there is one.
pub fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
