// How services and namespaces are, by their endpoints: colour means trouble beyond a share, numbers name the rest.

/** Share of endpoints, or of services, that may be out without a warning colour. */
const TOLERATED = 0.1;

const beyond = (out, all) => all > 0 && out / all > TOLERATED;

/** How a service is: good, doubt, bad, none. */
export function serviceHealth({ endpoints, healthy }) {
  if (endpoints === 0) return "none";
  if (healthy === 0) return "bad";
  return beyond(endpoints - healthy, endpoints) ? "doubt" : "good";
}

/** How a namespace is: bad where half of its services that have endpoints have no healthy one. */
export function namespaceHealth({ services, empty, unhealthy, endpoints, healthyEndpoints }) {
  const used = services - empty;
  if (!used) return "none";
  if (unhealthy * 2 >= used) return "bad";
  return beyond(unhealthy, used) || beyond(endpoints - healthyEndpoints, endpoints) ? "doubt" : "good";
}

/** How a number of things is, some of which are out. */
export const shareHealth = (out, all) => (out === 0 ? "good" : out === all ? "bad" : beyond(out, all) ? "doubt" : "good");
