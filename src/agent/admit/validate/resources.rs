//! Kubernetes' validation of requests and limits.

use std::collections::BTreeMap;

use crate::agent::admit::Findings;
use crate::model::names::cut;
use crate::model::pod::{Container, Pod, ResourceRequirements};
use crate::model::quantity::Quantity;

const HUGE_PAGES: &str = "hugepages-";

impl Findings {
    pub(super) fn resources(&mut self, path: &str, resources: &ResourceRequirements) {
        let kinds = [("limits", &resources.limits), ("requests", &resources.requests)];
        for (kind, quantities) in kinds {
            for (name, quantity) in quantities.iter().filter(|(_, q)| q.milli() < 0) {
                let path = format!("{path}.{kind}[{}]", cut(name));
                self.invalid(&path, quantity.to_string(), "must be greater than or equal to 0");
            }
        }
        for (name, request) in &resources.requests {
            let limit = resources.limits.get(name).filter(|l| l.milli() < request.milli());
            if let Some(limit) = limit {
                let name = cut(name);
                let expected = format!("must be less than or equal to {name} limit of {limit}");
                self.invalid(&format!("{path}.requests[{name}]"), request.to_string(), &expected);
            }
        }
        self.huge_pages(path, resources);
    }

    /// Huge pages cannot be overcommitted: the request has to equal the limit.
    fn huge_pages(&mut self, path: &str, resources: &ResourceRequirements) {
        let ResourceRequirements { limits, requests, .. } = resources;
        let is_page = |name: &&String| name.starts_with(HUGE_PAGES);
        let mut any = false;
        for name in limits.keys().chain(requests.keys()).filter(is_page) {
            any = true;
            let size = name[HUGE_PAGES.len()..].parse::<Quantity>();
            if !size.is_ok_and(|size| size.whole() > 0) {
                let path = format!("{path}.limits[{}]", cut(name));
                self.invalid(&path, cut(name), "must name a size of pages such as hugepages-2Mi");
            }
        }
        for (name, request) in requests.iter().filter(|(name, _)| is_page(name)) {
            let limit = limits.get(name).map(Quantity::milli);
            if limit != Some(request.milli()) {
                let name = cut(name);
                let got = limits.get(name).map_or_else(|| "0".to_owned(), Quantity::to_string);
                let expected = format!("must be equal to {name} limit of {got}");
                self.invalid(&format!("{path}.requests[{name}]"), request.to_string(), &expected);
            }
        }
        let needed = |name: &str| limits.contains_key(name) || requests.contains_key(name);
        if any && !needed("cpu") && !needed("memory") {
            self.problem(path, "Forbidden: HugePages require cpu or memory");
        }
    }

    /// Pod-level resources have to cover the containers' resources.
    pub(super) fn whole_resources(&mut self, pod: &Pod) {
        let (spec, own) = (&pod.spec, &pod.spec.resources);
        let path = "spec.resources";
        self.resources(path, own);
        for (kind, quantities) in [("limits", &own.limits), ("requests", &own.requests)] {
            let known =
                |name: &str| matches!(name, "cpu" | "memory") || name.starts_with(HUGE_PAGES);
            for name in quantities.keys().filter(|name| !known(name)) {
                let supported = "supported values: \"cpu\", \"hugepages-\", \"memory\"";
                let problem = format!("Unsupported value: {:?}: {supported}", cut(name));
                self.problem(&format!("{path}.{kind}[{}]", cut(name)), &problem);
            }
        }
        for (name, request) in &own.requests {
            let of = |main: &Container| of(&main.resources.requests, name);
            let sum = spec.containers.iter().map(of).fold(0, i64::saturating_add);
            if sum > request.milli() {
                let (name, sum) = (cut(name), sum.div_euclid(1_000));
                let expected = format!(
                    "must be greater than or equal to aggregate container requests of {sum}"
                );
                self.invalid(&format!("{path}.requests[{name}]"), request.to_string(), &expected);
            }
        }
        for (name, limit) in &own.limits {
            let mut all = spec.containers.iter().filter_map(|it| Some((it, limit_of(it, name)?)));
            if let Some((main, own)) = all.find(|(_, own)| own.milli() > limit.milli()) {
                let (got, name) = (own.to_string(), cut(name));
                let expected = format!("must be less than or equal to pod limits of {limit}");
                let path = format!("spec.containers{{{}}}.resources.limits[{name}]", main.name);
                self.invalid(&path, got, &expected);
            }
        }
    }
}

fn limit_of<'a>(container: &'a Container, name: &str) -> Option<&'a Quantity> {
    container.resources.limits.get(name)
}

fn of(quantities: &BTreeMap<String, Quantity>, name: &str) -> i64 {
    quantities.get(name).map_or(0, Quantity::milli)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(spec: &str) -> Vec<String> {
        let json = format!(r#"{{"metadata":{{"name":"a"}},"spec":{{{spec}}}}}"#);
        let pod: Pod = serde_json::from_str(&json).expect(spec);
        crate::agent::admit::tests::problems(&pod)
    }

    #[test]
    fn what_is_wrong_with_requests_and_limits_is_named() {
        let main = |resources: &str| {
            format!(r#""containers":[{{"name":"c","image":"i","resources":{resources}}}]"#)
        };
        let own = |own: &str| {
            let container = main(r#"{"requests":{"cpu":2},"limits":{"cpu":2,"memory":"2Mi"}}"#);
            format!(r#""resources":{own},{container}"#)
        };
        for (spec, want) in [
            (main(r#"{"limits":{"cpu":1,"hugepages-2Mi":"2Mi"}}"#), ""),
            (main(r#"{"limits":{"hugepages-2Mi":"2Mi"}}"#), "spec.containers[0].resources: Forbid"),
            (
                main(r#"{"limits":{"cpu":1,"hugepages-big":"2Mi"}}"#),
                "spec.containers[0].resources.limits[hugepages-big]: Invalid value",
            ),
            (
                main(r#"{"limits":{"cpu":1},"requests":{"hugepages-2Mi":"2Mi"}}"#),
                "spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"2Mi\": \
                 must be equal to hugepages-2Mi limit of 0",
            ),
            (own(r#"{"requests":{"cpu":2},"limits":{"memory":"2Mi"}}"#), ""),
            (
                own(r#"{"requests":{"cpu":1}}"#),
                "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal",
            ),
            (
                own(r#"{"limits":{"memory":"1Mi"}}"#),
                "spec.containers{c}.resources.limits[memory]: Invalid value: \"2Mi\": must be less",
            ),
            // No container limits it.
            (
                format!(r#""resources":{{"limits":{{"cpu":-1}}}},{}"#, main("{}")),
                "spec.resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal",
            ),
            (
                own(r#"{"limits":{"example.com/gpu":1}}"#),
                "spec.resources.limits[example.com/gpu]: Unsupported value: \"example.com/gpu\"",
            ),
        ] {
            let got = problems(&spec);
            let want: Vec<&str> = Some(want).filter(|want| !want.is_empty()).into_iter().collect();
            assert_eq!(got.len(), want.len(), "{spec}\n{got:#?}");
            let pairs = got.iter().zip(want);
            pairs.for_each(|(got, want)| assert!(got.starts_with(want), "{got}\n{want}"));
        }
    }
}
