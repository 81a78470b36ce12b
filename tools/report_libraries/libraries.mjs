import cytoscape from "cytoscape";
import ELK from "elkjs/lib/elk-api.js";
import * as echarts from "echarts/core";
import { BarChart, CustomChart, LineChart, ScatterChart, TreemapChart } from "echarts/charts";
import {
  DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent,
} from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";
echarts.use([BarChart, CustomChart, LineChart, ScatterChart, TreemapChart, DataZoomComponent, GridComponent,
  LegendComponent, MarkLineComponent, TooltipComponent, CanvasRenderer]);
window.cytoscape = cytoscape;
window.ELK = ELK;
window.echarts = echarts;
