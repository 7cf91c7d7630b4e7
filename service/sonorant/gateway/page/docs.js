// Shows /openapi.json, the description of all paths and fields.

const element = (name, text = "", ...children) => {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
};
const typeOf = (schema) =>
  schema.$ref ? schema.$ref.split("/").pop()
  : schema.enum ? schema.enum.join(" | ")
  : schema.const ?? (schema.anyOf ? schema.anyOf.map(typeOf).filter((type) => type !== "null").join(" or ")
  : schema.type === "array" ? `list of ${typeOf(schema.items ?? {})}` : String(schema.type ?? ""));
const fields = (schema) => {
  const table = element("table");
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const row = table.insertRow();
    row.append(element("td", "", element("code", name)), element("td", typeOf(field)), element("td", field.description ?? ""));
  }
  return table;
};
const show = async () => {
  const api = await (await fetch("/openapi.json")).json();
  for (const [path, operations] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const line = element("summary", "", element("span", method), element("code", path), ` ${operation.summary}`);
      line.firstChild.className = "method";
      const details = element("details", "", line);
      for (const content of Object.values(operation.requestBody?.content ?? {})) {
        details.append(element("p", `Body: ${typeOf(content.schema)}`));
      }
      const answers = element("table");
      for (const [status, answer] of Object.entries(operation.responses)) {
        answers.insertRow().append(element("td", status), element("td", answer.description));
      }
      details.append(answers);
      document.getElementById("operations").append(details);
    }
  }
  for (const [name, schema] of Object.entries(api.components.schemas)) {
    document.getElementById("schemas").append(
      element("h3", name), element("p", schema.description ?? ""), fields(schema));
  }
};
show();
