//! Keys for resources that are reserved from pods.

use crate::config::table::{Row, Rule, text};
use crate::model::error::Input;
use crate::model::housekeeping::Reserved;
use crate::model::quantity::Quantity;
use crate::wire::tree::Value;

pub(super) const TAILORED: &[Row] = &[
    (
        "kubeReserved",
        Rule::Take(|config, value| {
            config.housekeeping.kube_reserved = reserved(value)?;
            Ok(())
        }),
    ),
    (
        "systemReserved",
        Rule::Take(|config, value| {
            config.housekeeping.system_reserved = reserved(value)?;
            Ok(())
        }),
    ),
];

fn reserved(value: &Value) -> Result<Reserved, Input> {
    let Value::Map(map) = value else { return Err(Input::new(value, "a map")) };
    let mut reserved = Reserved::default();
    for (key, entry) in map {
        let amount = |of: fn(&Quantity) -> i64| {
            let given = text(&entry.node.value).map_err(|wrong| wrong.at(key))?;
            let parsed: Result<Quantity, Input> = given.parse();
            let quantity = parsed.map_err(|wrong| wrong.at(key))?;
            let negative = |_| Input::new(given, "0 or more").at(key);
            u64::try_from(of(&quantity)).map_err(negative)
        };
        match &**key {
            "cpu" => reserved.cpu_milli = amount(Quantity::milli)?,
            "memory" => reserved.memory_bytes = amount(Quantity::whole)?,
            "ephemeral-storage" => reserved.storage_bytes = amount(Quantity::whole)?,
            "pid" => reserved.pids = amount(Quantity::whole)?,
            _ => {
                let expected = "one of cpu, memory, ephemeral-storage, pid";
                return Err(Input::quoted(key, expected));
            }
        }
    }
    Ok(reserved)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::config::tests::edged_section;
    use crate::model::error::Refusal;

    fn read(line: &str) -> Result<Config, Refusal> {
        edged_section(&format!("tailoredKubeletConfig: {{{line}}}"))
    }

    #[test]
    fn what_is_kept_of_the_machine_is_the_sum_of_both() {
        let config = read(
            "systemReserved: {cpu: 100m, memory: 64Mi, ephemeral-storage: 1Gi}, \
             kubeReserved: {cpu: '0.5', memory: 32Mi, pid: '500'}",
        );
        let want =
            Reserved { cpu_milli: 600, memory_bytes: 96 << 20, storage_bytes: 1 << 30, pids: 500 };
        assert_eq!(config.expect("it is right").housekeeping.reserved(), want);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, want) in [
            ("systemReserved: {memory: lots}", "memory: got \"lots\", expected a quantity"),
            ("systemReserved: {memory: '-1'}", "memory: got -1, expected 0 or more"),
            ("kubeReserved: {disk: 1Gi}", "got \"disk\", expected one of cpu, memory, ephemeral"),
            ("kubeReserved: 5", "kubeReserved: got 5, expected a map"),
            ("kubeReserved: {cpu: 1}", "cpu: got 1, expected text"),
        ] {
            let why = read(line).expect_err(line).to_string();
            assert!(why.contains(want), "{why}\n{want}");
        }
    }
}
