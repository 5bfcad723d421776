//! What a plain YAML scalar means: as sigs.k8s.io/yaml decides it for every Kubernetes component.
//!
//! That is YAML 1.1 with what its Go library makes of it, so that a manifest means the same here as
//! with `kubectl apply`:
//!
//! - `yes no on off y n` in three cases are booleans, like `true` and `false`;
//! - `0x1f`, `0o17`, `0b11` and **`0644`** are whole numbers in their base, `_` between digits is
//!   dropped;
//! - `1:30` and dates are text.
//!
//! One difference: `.inf` and `.nan` are text, because JSON, which Kubernetes converts to, has no
//! such numbers and refuses them.

use super::Value;
use crate::model::tree::decimal;

/// The value of a scalar that is neither quoted nor tagged.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    number(text).unwrap_or_else(|| Value::Text(text.into()))
}

fn number(text: &str) -> Option<Value> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let plain = text.replace('_', "");
    let (sign, digits) = match plain.as_bytes().first()? {
        b'-' => ("-", &plain[1..]),
        b'+' => ("+", &plain[1..]),
        _ => ("", &plain[..]),
    };
    if let Some(whole) = whole(sign, digits) {
        return Some(whole);
    }
    if !is_float(digits) {
        return None;
    }
    decimal(&plain).map(Value::Float)
}

fn whole(sign: &str, digits: &str) -> Option<Value> {
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // The parser below takes a second sign.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    if let Ok(value) = i64::from_str_radix(&format!("{sign}{digits}"), radix) {
        return Some(Value::Int(value));
    }
    u64::from_str_radix(digits, radix).ok().filter(|_| sign.is_empty()).map(Value::Big)
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(digits: &str) -> bool {
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (digits, None),
    };
    let mantissa_holds = match mantissa.split_once('.') {
        Some((whole, part)) => {
            all_digits(whole) && all_digits(part) && !(whole.is_empty() && part.is_empty())
        }
        None => all_digits(mantissa) && !mantissa.is_empty(),
    };
    let exponent_holds = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        all_digits(digits) && !digits.is_empty()
    });
    mantissa_holds && exponent_holds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_kubernetes_makes_of_them() {
        for (text, value) in [
            ("", Value::Null),
            ("~", Value::Null),
            ("NULL", Value::Null),
            ("nULL", Value::Text("nULL".into())),
            ("yes", Value::Bool(true)),
            ("y", Value::Bool(true)),
            ("On", Value::Bool(true)),
            ("OFF", Value::Bool(false)),
            ("n", Value::Bool(false)),
            ("truE", Value::Text("truE".into())),
            ("0", Value::Int(0)),
            ("-0", Value::Int(0)),
            ("+7", Value::Int(7)),
            ("0644", Value::Int(420)),
            ("0o17", Value::Int(15)),
            ("0x1F", Value::Int(31)),
            ("-0b11", Value::Int(-3)),
            ("1_000", Value::Int(1000)),
            ("089", Value::Float(89.0)),
            ("18446744073709551615", Value::Big(u64::MAX)),
            ("99999999999999999999", Value::Float(1e20)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            ("1.5", Value::Float(1.5)),
            ("1.", Value::Float(1.0)),
            (".5", Value::Float(0.5)),
            ("1e3", Value::Float(1000.0)),
            ("-1.5E-3", Value::Float(-0.0015)),
        ] {
            assert_eq!(resolve(text), value, "{text:?}");
        }
    }

    #[test]
    fn what_only_looks_like_a_number_is_text() {
        for text in [
            "1.2.3",
            "500m",
            "64Mi",
            "1e",
            "1e+",
            ".",
            "-",
            "+",
            "--1",
            "+-1",
            "0x",
            "0xg",
            "0b2",
            "0o8",
            "0x-1",
            "1:30",
            "2001-12-14",
            ".inf",
            "-.inf",
            ".nan",
            "1e999",
            ".e3",
            "..",
            "٣",
            "_1",
            "1 2",
            "0x+1",
        ] {
            assert_eq!(resolve(text), Value::Text(text.into()), "{text:?}");
        }
    }
}
