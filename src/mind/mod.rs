//! What every mind needs and none decides by itself: time and chance as arguments, and how often
//! something may be done.
#![forbid(unsafe_code)]

pub mod rate;
pub mod time;
