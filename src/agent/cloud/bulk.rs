//! Limits how much memory a JSON text takes when it is parsed: three bytes of it may become a
//! struct of a kilobyte, so the values in a message are counted before it is parsed. That costs a
//! pass over its bytes and no memory.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::limits::Budget;
use crate::model::message::{self, Message};
use crate::model::tree::Shape;

/// The content of a message as an object's JSON; fails if it has too many values.
pub(super) fn inner<'a>(content: &'a RawValue, budget: &Budget) -> Result<Cow<'a, str>, String> {
    let text = message::inner(content);
    within(&text, budget.message_values_max, budget)?;
    Ok(text)
}

/// The same for a message, which may have no content.
pub(super) fn content<'a>(message: &'a Message, budget: &Budget) -> Result<Cow<'a, str>, String> {
    message.content.as_deref().map_or(Ok(Cow::default()), |content| inner(content, budget))
}

/// Fails if a list that was nested in a text has too many values.
pub(super) fn within_a_message(json: &str, budget: &Budget) -> Result<(), String> {
    within(json, budget.message_values_max, budget)
}

/// Fails if a pod has too many values.
pub(super) fn pod(json: &str, budget: &Budget) -> Result<(), String> {
    within(json, budget.pod_values_max, budget)
}

fn within(json: &str, most: usize, budget: &Budget) -> Result<(), String> {
    let got = Shape::of(json).values;
    if got > most {
        return Err(format!("got {got} values, expected at most {most}{}", budget.why()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_bound_in_either_form() {
        let list = |length: usize| format!("[{}]", vec!["0"; length].join(","));
        let full = Budget::FULL;
        let most = full.message_values_max;
        for (length, fits) in [(most, true), (most + 1, false)] {
            let list = list(length);
            let quoted = serde_json::to_string(&list).expect("a text");
            for content in [list, quoted] {
                let raw = RawValue::from_string(content).expect("JSON");
                assert_eq!(inner(&raw, &full).is_ok(), fits, "{length}");
            }
        }
        let why = pod(&list(full.pod_values_max + 1), &full).expect_err("one too many");
        assert_eq!(why, "got 8193 values, expected at most 8192");
    }

    #[test]
    fn a_small_process_has_a_smaller_bound_and_says_why() {
        let small = Budget::of(16 << 20);
        let why = pod(&format!("[{}]", vec!["0"; 2_049].join(",")), &small).expect_err("too many");
        assert_eq!(
            why,
            "got 2049 values, expected at most 2048, because this process may use 16777216 bytes \
             of memory"
        );
    }
}
