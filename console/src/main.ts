import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { followTickets, takeToken } from "./lib/backend.ts";

followTickets();
// The ticket leaves the address bar before anything can copy the address.
await takeToken();
mount(App, { target: document.getElementById("app")! });
