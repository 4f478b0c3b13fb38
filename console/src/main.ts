import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { takeToken } from "./lib/backend.ts";

// The token leaves the address bar before anything can copy the address.
takeToken();
mount(App, { target: document.getElementById("app")! });
